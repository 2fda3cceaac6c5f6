------------------------------ MODULE Reduced ------------------------------
(***************************************************************************)
(* Lease.tla without what can have no effect any more, so that TLC can     *)
(* check larger worlds. What a client forgets:                             *)
(*                                                                         *)
(* - Everything, if nothing that it wrote is the newest version or may     *)
(*   land, the version that it knows is not the newest one, it believes    *)
(*   nothing, and no answer can make it believe. From there it can only    *)
(*   come to an end, and nobody else sees how.                             *)
(* - Everything, if the newest version is its own free record: the same.   *)
(* - While it frees: which of its attempts may land, but for their kinds.  *)
(*   One lands at most, and then it does not matter which.                 *)
(***************************************************************************)
EXTENDS Lease

Wrote(s, kind, fate) == \E k \in DOMAIN s.tries : s.tries[k].kind = kind /\ s.tries[k].fate = fate

\* The newest version is known to it or its own, or a write of it may land.
Matters(s) == s.current \/ \E k \in DOMAIN s.tries : s.tries[k].fate \in {"fly", "head"}

\* The late answer of a write that landed and was replaced makes a lease of which something is left.
MayAdopt(s) == \E k \in DOMAIN s.tries :
    s.tries[k].kind = "live" /\ s.tries[k].fate = "gone" /\ ~Over(s.tries[k].age)

Forgotten(s) == [Idle EXCEPT !.watched = s.watched]

Frees(s) ==
    LET bare(kind, fate) == <<[kind |-> kind, age |-> 0, short |-> 0, fate |-> fate]>>
        spent == IF Wrote(s, "spent", "head") THEN bare("spent", "head")
                 ELSE IF Wrote(s, "spent", "fly") THEN bare("spent", "fly") ELSE <<>>
        free == IF Wrote(s, "free", "fly") THEN bare("free", "fly")
                ELSE IF s.phase /= "end" THEN bare("free", "dead") ELSE <<>> IN
    [s EXCEPT !.tries = spent \o free, !.saw = IF @ > 0 THEN 1 ELSE @]

\* In place of Known.
Less(s) ==
    CASE s.phase = "idle" -> s
      [] s.phase \in Freeing -> IF ~Matters(s) \/ Wrote(s, "free", "head") THEN Forgotten(s) ELSE Frees(s)
      [] s.phase \in Acquiring -> IF Matters(s) \/ MayAdopt(s) THEN s ELSE Forgotten(s)
      [] OTHER -> IF Matters(s) \/ ~Over(s.sent) \/ ~Has("deadline") THEN s ELSE Forgotten(s)

ASSUME Keeps = 0    \* a kept record is not told from a free one
=============================================================================
