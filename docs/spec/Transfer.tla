----------------------------- MODULE Transfer -----------------------------
(***************************************************************************)
(* A lock passes on by a ticket (29). The giver stops believing and writes *)
(* an offer; who redeems the ticket writes over the offer. The ticket is   *)
(* used by two, answers get lost, and the offer may be renewed by nobody.  *)
(***************************************************************************)
EXTENDS Integers, TLC

Takers == 1..2
Rules == {"giver ends", "offer only", "condition"}

VARIABLES
    object,     \* what the newest record is, and its version
    giver,      \* "held", "sent", "gone"
    taker,      \* phase, and the version that it writes over
    without     \* the rule that is left out

vars == <<object, giver, taker, without>>
Has(rule) == rule \notin without

Init ==
    /\ without \in {{}} \cup {{rule} : rule \in Rules}
    /\ object = [kind |-> "held", version |-> 0]
    /\ giver = "held"
    /\ taker = [t \in Takers |-> [phase |-> "new", base |-> 0]]

Write(kind) == object' = [kind |-> kind, version |-> object.version + 1]

\* The giver's belief ends before the offer is sent.
Offer == giver = "held" /\ giver' = "sent" /\ UNCHANGED <<object, taker, without>>
OfferLands == giver = "sent" /\ object.kind = "held" /\ Write("offer") /\ UNCHANGED <<giver, taker, without>>
Answered == giver = "sent" /\ object.kind /= "held" /\ giver' = "gone" /\ UNCHANGED <<object, taker, without>>

GiverBelieves == giver = "held" \/ (giver = "sent" /\ ~Has("giver ends"))

\* A record that is not the offer leaves the ticket spent.
Look(t) ==
    /\ taker[t].phase = "new"
    /\ IF object.kind = "offer" \/ (~Has("offer only") /\ object.kind \in {"free", "taken"})
       THEN taker' = [taker EXCEPT ![t] = [phase |-> "sent", base |-> object.version]]
       ELSE object.kind \in {"free", "taken"} /\ taker' = [taker EXCEPT ![t].phase = "refused"]
    /\ UNCHANGED <<object, giver, without>>

Redeem(t) ==
    /\ taker[t].phase = "sent"
    /\ Has("condition") => object.version = taker[t].base
    /\ Write("taken")
    /\ taker' = [taker EXCEPT ![t].phase = "in"]
    /\ UNCHANGED <<giver, without>>

Refused(t) ==
    /\ taker[t].phase = "sent" /\ object.version /= taker[t].base
    /\ taker' = [taker EXCEPT ![t].phase = "new"]
    /\ UNCHANGED <<object, giver, without>>

Leave(t) ==
    /\ taker[t].phase = "in" /\ Write("free")
    /\ taker' = [taker EXCEPT ![t].phase = "left"]
    /\ UNCHANGED <<giver, without>>

In(t) == taker[t].phase = "in"
OneBeliever == ~\E t \in Takers : In(t) /\ (GiverBelieves \/ \E u \in Takers : u /= t /\ In(u))
SpentOnce == ~\E t, u \in Takers : t /= u /\ taker[t].phase = "left" /\ taker[u].phase \in {"in", "left"}

Safe == OneBeliever /\ SpentOnce
Reached == \E t, u \in Takers : taker[t].phase = "left" /\ taker[u].phase = "refused"
Next == Safe /\ (Offer \/ OfferLands \/ Answered \/ \E t \in Takers : Look(t) \/ Redeem(t) \/ Refused(t) \/ Leave(t))
Told == (Safe \/ PrintT(<<"broken", without>>)) /\ (~Reached \/ PrintT(<<"reached", without>>))
Spec == Init /\ [][Next]_vars
===========================================================================
