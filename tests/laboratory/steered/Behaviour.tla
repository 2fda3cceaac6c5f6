---------------------------- MODULE Behaviour ----------------------------
(***************************************************************************)
(* Lease.tla, and what each step was. Only clients whose clocks are right: *)
(* belief ends M earlier than for the slowest clock. Left out is what the  *)
(* code decides by itself: a second look at what it knows, a hand-over.    *)
(***************************************************************************)
EXTENDS Lease

VARIABLE did

RightClocks == L - M

Did(name, c, k) == did' = <<name, c, k>>

\* A look that finds the lock held changes nothing.
Waits(c) == client[c].phase = "idle" /\ head.kind = "live" /\ ~Free(c) /\ UNCHANGED vars

Does(c) ==
    \/ Waits(c) /\ Did("wait", c, 0)
    \/ Look(c) /\ Did("look", c, 0)
    \/ Send(c, 0) /\ Did("send", c, 0)
    \/ Answered(c) /\ client'[c].phase = "held" /\ Did("answered", c, 0)
    \/ NoAnswer(c) /\ Did("no answer", c, 0)
    \/ client[c].phase \in {"unsure", "renew-unsure", "free-wait"} /\ Read(c) /\ Did("read", c, 0)
    \/ Settle(c) /\ (client[c].saw > 0 => client'[c].phase = "held") /\ Did("settle", c, 0)
    \/ GiveUp(c) /\ Did("give up", c, 0)
    \/ Renew(c, 0) /\ Did("renew", c, 0)
    \/ RenewAgain(c, 0) /\ Did("renew again", c, 0)
    \/ Renewed(c) /\ Did("renewed", c, 0)
    \/ End(c) /\ Did("end", c, 0)
    \/ Release(c) /\ Did("release", c, 0)
    \/ Freed(c) /\ Did("freed", c, 0)

\* Past its deadline the code does nothing for a lease but clean up.
Steers(c) ==
    /\ client[c].phase \in Holding => ~Over(client[c].sent)
    /\ Does(c)

Outside(c) ==
    \/ Crash(c) /\ Did("crash", c, 0)
    \/ \E k \in 1..(Tries + 1) : Land(c, k) /\ Did("land", c, k)

SteeredSpec ==
    /\ Init /\ did = <<"init", 0, 0>>
    /\ [][(Tick /\ Did("tick", 0, 0)) \/ \E c \in Clients : Steers(c) \/ Outside(c)]_<<vars, did>>
===========================================================================
