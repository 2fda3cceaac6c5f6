---------------------------- MODULE Semaphore ----------------------------
(***************************************************************************)
(* A semaphore (31): a slot is a lock, and a number in the store says how  *)
(* many slots there are. Of the locks of the slots Lease.tla is used: at   *)
(* most one lease believes by each, and it may be lost at any moment.      *)
(***************************************************************************)
EXTENDS Integers, FiniteSets, TLC

Clients == 1..2
Slots == 0..2
Rules == {"slot first", "look"}

VARIABLES
    number,     \* of slots, as the store has it
    client,     \* phase, slot, the number that it saw, and whether it had its slot at the last change
    without     \* the rule that is left out

vars == <<number, client, without>>
Has(rule) == rule \notin without
Idle == [phase |-> "idle", slot |-> -1, saw |-> -1, before |-> FALSE]

Init ==
    /\ without \in {{}} \cup {{rule} : rule \in Rules}
    /\ number = 2 /\ client = [c \in Clients |-> Idle]

Taken(s) == \E c \in Clients : client[c].slot = s
Set(c, new) == client' = [client EXCEPT ![c] = new] /\ UNCHANGED <<number, without>>

\* The slot is confirmed first, then the number is read, then the lease is handed out.
Take(c) == client[c].phase = "idle" /\ \E s \in Slots : ~Taken(s) /\
    Set(c, [Idle EXCEPT !.phase = IF Has("look") THEN "look" ELSE "in", !.slot = s])
Look(c) == client[c].phase = "look" /\ Set(c, [client[c] EXCEPT !.phase = "saw", !.saw = number])
HandOut(c) == client[c].phase = "saw" /\
    Set(c, IF client[c].slot < client[c].saw THEN [client[c] EXCEPT !.phase = "in"] ELSE Idle)

\* Without that rule the number is read first.
LookFirst(c) == ~Has("slot first") /\ client[c].phase = "idle" /\
    Set(c, [Idle EXCEPT !.phase = "looked", !.saw = number])
TakeThen(c) == client[c].phase = "looked" /\ \E s \in Slots : ~Taken(s) /\ s < client[c].saw /\
    Set(c, [client[c] EXCEPT !.phase = "in", !.slot = s])

\* A release, or a loss, at any moment.
Leave(c) == client[c].slot >= 0 /\ Set(c, Idle)

Resize == \E m \in 1..3 : m /= number /\ number' = m /\ UNCHANGED without /\
    client' = [c \in Clients |-> [client[c] EXCEPT !.before = @ \/ client[c].slot >= 0]]

\* Once a change has returned, nobody gets a slot above the number any more; who has one keeps it.
AtMost == \A c \in Clients : client[c].phase = "in" /\ client[c].slot >= number => client[c].before

Safe == AtMost
Reached == \E c \in Clients : client[c].phase = "in" /\ client[c].slot >= number
Next == Safe /\ (Resize \/ \E c \in Clients :
    Take(c) \/ Look(c) \/ HandOut(c) \/ LookFirst(c) \/ TakeThen(c) \/ Leave(c))
Told == (Safe \/ PrintT(<<"broken", without>>)) /\ (~Reached \/ PrintT(<<"reached", without>>))
Spec == Init /\ [][Next]_vars
===========================================================================
