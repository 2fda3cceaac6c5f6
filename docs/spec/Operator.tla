----------------------------- MODULE Operator -----------------------------
(***************************************************************************)
(* What people do to the object: they break a lock (10), prune one that    *)
(* nobody uses (22), write something else over it (9), or delete it by     *)
(* hand. Lease.tla gives that the lock of a holder that died is taken      *)
(* after L, and that no belief outlasts it.                                *)
(***************************************************************************)
EXTENDS Integers, TLC

Clients == 1..2
L == 2
Late == 2       \* how long a write may be under way
Day == 3        \* how long a lock has been free when it is pruned; more than Late
Future == 6     \* a token that is ahead of store time: clocks were wrong, or a Hudi writer had dropped it
Last == 7
Most == 3       \* acquisitions
Rules == {"version that was seen", "force", "corrupt", "pruned version", "free for long", "token of the past",
          "nobody acquires"}

VARIABLES
    now,        \* store time
    object,     \* its kind, token, and when it was written
    client,     \* until when each believes; 0: it does not
    late,       \* until when a write that creates the object may still land; 0: there is none
    tool,       \* what the operator is about to do, and whether the version that it has seen is still the newest
    deleted,    \* when the object was deleted by hand
    handed,     \* the highest token that was handed out
    done,       \* what has happened
    left,       \* acquisitions that are left
    without     \* the rule or assumption that is left out

vars == <<now, object, client, late, tool, deleted, handed, done, left, without>>
Has(rule) == rule \notin without
Max(a, b) == IF a > b THEN a ELSE b
Nothing == [act |-> "", current |-> FALSE]

Init ==
    /\ without \in {{}} \cup {{rule} : rule \in Rules}
    /\ now = 1 /\ \E token \in {0, Future} : object = [kind |-> "free", token |-> token, at |-> 1]
    /\ client = [c \in Clients |-> 0] /\ late = 0 /\ tool = Nothing
    /\ deleted = -9 /\ handed = object.token /\ done = {} /\ left = Most

Change(kind, token) == object' = [kind |-> kind, token |-> token, at |-> now]
Write(kind, token) == Change(kind, token) /\ tool' = [tool EXCEPT !.current = FALSE]

(* ------------------------------- clients ------------------------------- *)

Free == object.kind \in {"none", "free"} \/ (object.kind = "live" /\ now - object.at > L)
    \/ (object.kind = "corrupt" /\ ~Has("corrupt"))

\* After a deletion by hand nobody acquires for L.
MayAcquire == Has("nobody acquires") => now - deleted > L

Take(c) ==
    LET token == IF object.kind \in {"none", "corrupt"} THEN now ELSE Max(object.token + 1, now) IN
    /\ client[c] = 0 /\ left > 0 /\ Free /\ MayAcquire
    /\ left' = left - 1
    /\ Write("live", token) /\ handed' = Max(handed, token)
    /\ client' = [client EXCEPT ![c] = now + L]
    /\ done' = done \cup (IF token <= handed THEN {"token fell"} ELSE {}) \cup
                      (IF object.kind = "none" THEN {"made again"} ELSE {})
    /\ UNCHANGED <<now, late, deleted, without>>

Leave(c) ==
    /\ client[c] > 0 /\ object.kind = "live" /\ Write("free", object.token)
    /\ client' = [client EXCEPT ![c] = 0]
    /\ UNCHANGED <<now, late, deleted, handed, done, left, without>>

\* An acquisition has sent a write to create the object, and has given up: another one has created it since.
Overtaken ==
    /\ object.kind = "none" /\ late = 0 /\ MayAcquire /\ late' = now + Late
    /\ Write("free", now) /\ UNCHANGED <<now, client, deleted, handed, done, left, without>>

\* The object is missing again.
LandLate ==
    /\ late > now /\ object.kind = "none" /\ "pruned" \in done /\ late' = 0
    /\ Write("live", now) /\ done' = done \cup {"zombie"}
    /\ UNCHANGED <<now, client, deleted, handed, left, without>>

(* ------------------------------- operator ------------------------------ *)

Look(act) ==
    /\ tool = Nothing /\ object.kind /= "none"
    /\ CASE act = "break" -> Has("force") => object.kind \in {"free", "live"} /\ Free
         [] act = "prune" -> /\ object.kind = "free"
                             /\ Has("free for long") => now - object.at >= Day
                             /\ Has("token of the past") => object.token < now
    /\ tool' = [act |-> act, current |-> TRUE]
    /\ UNCHANGED <<now, object, client, late, deleted, handed, done, left, without>>

Refused == Has(IF tool.act = "break" THEN "version that was seen" ELSE "pruned version")
    /\ ~tool.current

Act ==
    /\ tool /= Nothing /\ tool' = Nothing /\ object.kind /= "none"
    /\ IF Refused THEN UNCHANGED <<object, done>>
       ELSE IF tool.act = "break" THEN Change("free", object.token) /\ done' = done \cup {"broken"}
       ELSE Change("none", 0) /\ done' = done \cup {"pruned"}
    /\ UNCHANGED <<now, client, late, deleted, handed, left, without>>

\* Somebody writes something else over it; somebody deletes it, once.
Corrupt ==
    /\ object.kind = "live" /\ "corrupted" \notin done /\ Write("corrupt", 0) /\ done' = done \cup {"corrupted"}
    /\ UNCHANGED <<now, client, late, deleted, handed, left, without>>
Delete ==
    /\ object.kind = "live" /\ deleted < 0 /\ object.token < now /\ Write("none", 0) /\ deleted' = now
    /\ UNCHANGED <<now, client, late, handed, done, left, without>>

Tick ==
    /\ now < Last /\ now' = now + 1
    /\ client' = [c \in Clients |-> IF client[c] <= now + 1 THEN 0 ELSE client[c]]
    /\ UNCHANGED <<object, late, tool, deleted, handed, done, left, without>>

OneBeliever == client[1] = 0 \/ client[2] = 0
TokenRises == "token fell" \notin done
NoZombie == "zombie" \notin done

Safe == OneBeliever /\ TokenRises /\ NoZombie
Reached == {"made again", "broken"} \subseteq done
Next == Safe /\ (Overtaken \/ LandLate \/ Look("break") \/ Look("prune") \/ Act \/ Corrupt \/ Delete \/ Tick
    \/ \E c \in Clients : Take(c) \/ Leave(c))
Told == (Safe \/ PrintT(<<"broken", without>>)) /\ (~Reached \/ PrintT(<<"reached", without>>))
Spec == Init /\ [][Next]_vars
===========================================================================
