------------------------------ MODULE Fenced ------------------------------
(***************************************************************************)
(* The fenced object (11): changed only by conditional writes under a      *)
(* token. Nothing is assumed of the lock but that tokens rise: holders     *)
(* overlap, and a write may land long after its holder has lost the lock.  *)
(***************************************************************************)
EXTENDS Integers, FiniteSets, TLC

Holders == 1..3         \* of the lock, one after another; the number is the token
Rules == {"condition", "token check"}

VARIABLES
    object,     \* its token, its version, and which updates are in its value
    holder,     \* phase, and what it has read
    landed,     \* the updates that were written
    highest,    \* the highest token that was written
    without     \* the rule that is left out

vars == <<object, holder, landed, highest, without>>
Has(rule) == rule \notin without

Init ==
    /\ without \in {{}} \cup {{rule} : rule \in Rules}
    /\ object = [token |-> 0, version |-> 0, value |-> {}]
    /\ holder = [h \in Holders |-> [phase |-> "new", base |-> 0, value |-> {}]]
    /\ landed = {} /\ highest = 0

\* Each reads and changes what it has read; a holder with an older token than the object's stops.
Read(h) ==
    /\ holder[h].phase = "new"
    /\ Has("token check") => object.token <= h
    /\ holder' = [holder EXCEPT ![h] = [phase |-> "sent", base |-> object.version, value |-> object.value \cup {h}]]
    /\ UNCHANGED <<object, landed, highest, without>>

Land(h) ==
    /\ holder[h].phase = "sent"
    /\ Has("condition") => object.version = holder[h].base
    /\ object' = [token |-> h, version |-> object.version + 1, value |-> holder[h].value]
    /\ holder' = [holder EXCEPT ![h].phase = "done"]
    /\ landed' = landed \cup {h}
    /\ highest' = IF h > highest THEN h ELSE highest
    /\ UNCHANGED without

\* Refused: it reads again.
Refused(h) ==
    /\ holder[h].phase = "sent" /\ object.version /= holder[h].base
    /\ holder' = [holder EXCEPT ![h].phase = "new"]
    /\ UNCHANGED <<object, landed, highest, without>>

NoUpdateLost == landed = object.value
TokenRises == object.token = highest

Safe == NoUpdateLost /\ TokenRises
Reached == Cardinality(landed) = 3
Next == Safe /\ \E h \in Holders : Read(h) \/ Land(h) \/ Refused(h)
Told == (Safe \/ PrintT(<<"broken", without>>)) /\ (~Reached \/ PrintT(<<"reached", without>>))
Spec == Init /\ [][Next]_vars
===========================================================================
