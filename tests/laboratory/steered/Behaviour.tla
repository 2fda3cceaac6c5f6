---------------------------- MODULE Behaviour ----------------------------
(***************************************************************************)
(* Lease.tla, and what each step was. Only clients whose clocks are right: *)
(* belief ends M earlier than for the slowest clock. Left out is what the  *)
(* code decides by itself: a second look at what it knows, a hand-over.    *)
(***************************************************************************)
EXTENDS Lease

VARIABLES
    did,
    may     \* what may go wrong in this behaviour; drawn once, so that some go far

Kinds == {"give up", "crash", "lose", "wait", "slow", "leave"}
May(kind) == kind \in may

RightClocks == L - M

Did(name, c, k) == did' = <<name, c, k>>

\* A look that finds the lock held changes nothing.
Waits(c) == client[c].phase = "idle" /\ head.kind = "live" /\ ~Free(c) /\ UNCHANGED vars
    /\ (c \in Dateless => client[c].watched >= 0)

Last(c) == client[c].tries[Len(client[c].tries)]

\* The code has no most of attempts: it does not end for that.
Tried(c) == client[c].saw = 0 => Len(client[c].tries) < Tries \/ client[c].phase = "renew-wait"

Does(c) ==
    \/ May("wait") /\ Waits(c) /\ Did("wait", c, 0)
    \/ c \in Dateless /\ head.kind = "live" /\ ~Free(c) /\ Watch(c, 0) /\ Did("watch", c, 0)
    \/ Look(c) /\ Did("look", c, 0)
    \/ Send(c, 0) /\ Did("send", c, 0)
    \/ Answered(c) /\ client'[c].phase = "held" /\ Did("answered", c, 0)
    \/ NoAnswer(c) /\ (May("lose") \/ Last(c).fate = "dead") /\ Did("no answer", c, 0)
    \/ client[c].phase \in {"unsure", "renew-unsure", "free-wait"} /\ Read(c) /\ Did("read", c, 0)
    \/ Settle(c) /\ Tried(c) /\ (client[c].saw > 0 => client'[c].phase = "held") /\ Did("settle", c, 0)
    \/ May("give up") /\ GiveUp(c) /\ Did("give up", c, 0)
    \/ Renew(c, 0) /\ Did("renew", c, 0)
    \/ RenewAgain(c, 0) /\ Did("renew again", c, 0)
    \/ Renewed(c) /\ Tried(c) /\ Did("renewed", c, 0)
    \/ May("leave") /\ End(c) /\ Did("end", c, 0)
    \/ Release(c) /\ Did("release", c, 0)
    \/ Freed(c) /\ Did("freed", c, 0)

\* Past its deadline the code does nothing for a lease but clean up.
Steers(c) ==
    /\ client[c].phase \in Holding => ~Over(client[c].sent)
    /\ Does(c)

Outside(c) ==
    \/ May("crash") /\ Crash(c) /\ Did("crash", c, 0)
    \/ \E k \in 1..(Tries + 1) : Land(c, k) /\ Did("land", c, k)

\* Else time passes only if nothing is under way, so that leases are renewed before they are over.
Waited == May("slow") \/ \A c \in Clients : client[c].phase \in {"idle", "held", "end"}

SteeredSpec ==
    /\ Init /\ did = <<"init", 0, 0>> /\ may \in SUBSET Kinds
    /\ [][/\ UNCHANGED may
          /\ (Waited /\ Tick /\ Did("tick", 0, 0)) \/ \E c \in Clients : Steers(c) \/ Outside(c)]_<<vars, did, may>>
===========================================================================
