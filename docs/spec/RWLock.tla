------------------------------ MODULE RWLock ------------------------------
(***************************************************************************)
(* A reader-writer lock (32): writers share a lock, and each reader has a  *)
(* slot, which is a lock. Of these locks Lease.tla is used: at most one    *)
(* lease believes by each, and it may be lost at any moment.               *)
(***************************************************************************)
EXTENDS Integers, FiniteSets, TLC

Writers == 1..2
Readers == 3..4
Slots == 1..2
Rules == {"reader looks", "reader's slot first", "writer's lock first", "every slot", "one lease"}

VARIABLES
    writer,     \* who has the writers' lock; 0: nobody
    slot,       \* who has each slot
    phase,      \* "idle", "look", "saw", "in"
    seen,       \* what has been looked at: slots that were free for a writer, the lock that was free for a reader
    without     \* the rule that is left out

vars == <<writer, slot, phase, seen, without>>
Has(rule) == rule \notin without

Init ==
    /\ without \in {{}} \cup {{rule} : rule \in Rules}
    /\ writer = 0 /\ slot = [s \in Slots |-> 0]
    /\ phase = [a \in Writers \cup Readers |-> "idle"]
    /\ seen = [a \in Writers \cup Readers |-> {}]

To(a, p, s) == phase' = [phase EXCEPT ![a] = p] /\ seen' = [seen EXCEPT ![a] = s]
Slot(r) == {s \in Slots : slot[s] = r}

(* ------------------------------- readers ------------------------------- *)

TakeSlot(r) == phase[r] = "idle" /\ \E s \in Slots : slot[s] = 0 /\ slot' = [slot EXCEPT ![s] = r] /\
    To(r, IF Has("reader looks") /\ 0 \notin seen[r] THEN "look" ELSE "in", {}) /\ UNCHANGED <<writer, without>>
LookAtWriter(r) == phase[r] = "look" /\ To(r, "saw", IF writer = 0 THEN {0} ELSE {}) /\
    UNCHANGED <<writer, slot, without>>
Enter(r) == phase[r] = "saw" /\ UNCHANGED <<writer, without>> /\
    IF seen[r] = {0} THEN To(r, "in", {}) /\ UNCHANGED slot
    ELSE To(r, "idle", {}) /\ slot' = [s \in Slots |-> IF slot[s] = r THEN 0 ELSE slot[s]]
LookFirst(r) == ~Has("reader's slot first") /\ phase[r] = "idle" /\ writer = 0 /\ To(r, "idle", {0}) /\
    UNCHANGED <<writer, slot, without>>

(* ------------------------------- writers ------------------------------- *)

TakeLock(w) == phase[w] = "idle" /\ writer = 0 /\ writer' = w /\ To(w, "look", seen[w]) /\ UNCHANGED <<slot, without>>
Needed == IF Has("every slot") THEN Slots ELSE Slots \ {2}
\* It waits until it has seen each slot free.
LookAtSlot(w) ==
    /\ phase[w] = "look" \/ (~Has("writer's lock first") /\ phase[w] = "idle")
    /\ \E s \in Slots : slot[s] = 0 /\ To(w, phase[w], seen[w] \cup {s})
    /\ UNCHANGED <<writer, slot, without>>
EnterAlone(w) == phase[w] = "look" /\ Needed \subseteq seen[w] /\ To(w, "in", {}) /\ UNCHANGED <<writer, slot, without>>

\* A release, or a loss, at any moment. What was seen is worth something for one lease only.
Leave(a) ==
    /\ phase[a] /= "idle"
    /\ To(a, "idle", IF Has("one lease") THEN {} ELSE seen[a])
    /\ writer' = IF writer = a THEN 0 ELSE writer
    /\ slot' = [s \in Slots |-> IF slot[s] = a THEN 0 ELSE slot[s]]
    /\ UNCHANGED without

NotBoth == ~\E w \in Writers, r \in Readers : phase[w] = "in" /\ phase[r] = "in"

Safe == NotBoth
Reached == \E r, q \in Readers : r /= q /\ phase[r] = "in" /\ phase[q] = "in" /\ writer /= 0
Next == Safe /\
    (\/ \E r \in Readers : TakeSlot(r) \/ LookAtWriter(r) \/ Enter(r) \/ LookFirst(r) \/ Leave(r)
     \/ \E w \in Writers : TakeLock(w) \/ LookAtSlot(w) \/ EnterAlone(w) \/ Leave(w))
Told == (Safe \/ PrintT(<<"broken", without>>)) /\ (~Reached \/ PrintT(<<"reached", without>>))
Spec == Init /\ [][Next]_vars
===========================================================================
