------------------------------ MODULE Token ------------------------------
(***************************************************************************)
(* How a fencing token is made (11), next to a writer of Hudi that drops   *)
(* it. Lease.tla gives that one acquires at a time, and that the lock of a *)
(* holder that died is taken after L. The nodes of the store are ahead of  *)
(* true time by 0 to S, and their Dates are cut short by up to R.          *)
(*                                                                         *)
(* A token is a pair: ticks of store time, and a count within the tick,    *)
(* for "previous + 1" is a microsecond.                                    *)
(***************************************************************************)
EXTENDS Integers, TLC

S == 1
R == 1
T == 1          \* the longest round trip of a Date that is carried
L == 3          \* at least S + R + T
Last == 7
Most == 3       \* acquisitions
Rules == {"previous", "kept by a release", "dropped", "settle", "dropped in the wait", "long lease"}

VARIABLES
    now,        \* true time
    object,     \* kind, token, age
    holder,     \* phase, token, and whether the token had to settle
    handed,     \* the last token that was handed out
    fell,       \* a token was not above the one before
    ahead,      \* a token was from the future when it was handed out
    left,       \* acquisitions that are left
    without     \* the rule that is left out

vars == <<now, object, holder, handed, fell, ahead, left, without>>
Has(rule) == rule \notin without
Less(a, b) == a[1] < b[1] \/ (a[1] = b[1] /\ a[2] < b[2])
Later(a, b) == IF Less(a, b) THEN b ELSE a
Idle == [phase |-> "idle", token |-> <<0, 0>>, settled |-> FALSE]
Record(kind, token) == object' = [kind |-> kind, token |-> token, age |-> 0]

Init ==
    /\ without \in {{}} \cup {{rule} : rule \in Rules}
    /\ now = 1 /\ object = [kind |-> "none", token |-> <<0, 0>>, age |-> 0] /\ holder = Idle
    /\ handed = <<0, 0>> /\ fell = FALSE /\ ahead = FALSE /\ left = Most

\* What a Date says: the earliest that store time can be.
Earliest == (now - R)..(now + S)

HandOut(token, settled) ==
    /\ holder' = [phase |-> "held", token |-> token, settled |-> settled]
    /\ handed' = token
    /\ fell' = ~Less(handed, token)
    /\ ahead' = (token[1] > now + S + R)

Free == object.kind \in {"none", "free", "dropped"} \/
    (object.kind = "dead" /\ object.age > IF Has("long lease") THEN L ELSE 0)

Acquire == \E lo \in Earliest, trip \in 0..T :
    LET dropped == object.kind = "dropped" /\ Has("dropped")
        token == IF dropped THEN <<lo + R + trip + S + R, 0>>
                 ELSE IF object.kind \in {"none", "dropped"} THEN <<lo + R, 0>>
                 ELSE IF Has("previous") THEN Later(<<object.token[1], object.token[2] + 1>>, <<lo, 0>>)
                 ELSE <<lo, 0>> IN
    /\ holder.phase = "idle" /\ left > 0 /\ Free
    /\ Record("live", token)
    /\ left' = left - 1
    /\ IF dropped /\ Has("settle")
       THEN holder' = [phase |-> "settling", token |-> token, settled |-> TRUE] /\ UNCHANGED <<handed, fell, ahead>>
       ELSE HandOut(token, FALSE)
    /\ UNCHANGED <<now, without>>

Settle ==
    /\ holder.phase = "settling" /\ \E lo \in Earliest : lo + R >= holder.token[1]
    /\ HandOut(holder.token, TRUE)
    /\ UNCHANGED <<now, object, left, without>>

\* Who gives up in the wait drops the fields, so that nobody builds on a token from the future.
Leave ==
    /\ holder.phase \in {"held", "settling"} /\ holder' = Idle
    /\ IF holder.phase = "settling" THEN Record(IF Has("dropped in the wait") THEN "dropped" ELSE "free", holder.token)
       ELSE Record("free", IF Has("kept by a release") THEN holder.token ELSE <<0, 0>>)
    /\ UNCHANGED <<now, handed, fell, ahead, left, without>>

Die ==
    /\ holder.phase \in {"held", "settling"} /\ holder' = Idle /\ Record("dead", object.token)
    /\ UNCHANGED <<now, handed, fell, ahead, left, without>>

\* A writer of Hudi takes the lock and leaves it, which takes time.
Hudi ==
    /\ holder.phase = "idle" /\ object.kind \in {"free", "dropped"} /\ now < Last
    /\ now' = now + 1 /\ Record("dropped", <<0, 0>>)
    /\ UNCHANGED <<holder, handed, fell, ahead, left, without>>

Tick ==
    /\ now < Last /\ now' = now + 1
    /\ object' = [object EXCEPT !.age = IF object.kind = "dead" THEN @ + 1 ELSE 0]
    /\ UNCHANGED <<holder, handed, fell, ahead, left, without>>

TokenRises == ~fell
NotAhead == ~ahead

Safe == TokenRises /\ NotAhead
Reached == holder.phase = "held" /\ holder.settled
Next == Safe /\ (Acquire \/ Settle \/ Leave \/ Die \/ Hudi \/ Tick)
Told == (Safe \/ PrintT(<<"broken", without>>)) /\ (~Reached \/ PrintT(<<"reached", without>>))
Spec == Init /\ [][Next]_vars
===========================================================================
