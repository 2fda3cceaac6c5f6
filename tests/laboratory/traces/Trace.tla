------------------------------ MODULE Trace ------------------------------
(***************************************************************************)
(* Histories of the shipped code as behaviours of Lease.tla.               *)
(*                                                                         *)
(* A history is a sequence of lines: what the code did, and how many ticks *)
(* (milliseconds of true time) have passed since the line before. Each     *)
(* line is one action of the specification. What leaves no line is a       *)
(* silent step: that no answer came, and what follows from a read. It is   *)
(* taken only if the next line needs it, so there is one way through.      *)
(*                                                                         *)
(* A history is refused if its next line is no step that the specification *)
(* allows, or leads to a state that is not Sound.                          *)
(***************************************************************************)
EXTENDS Lease, Recorded

VARIABLES
    history,    \* its number
    line,       \* the number of the next line
    passed,     \* the ticks before that line have passed
    names       \* of each client's attempts, in their order: numbers that the lines use

traced == <<head, client, stray, budget, history, line, passed, names>>

Sound == OneBeliever /\ Newest /\ NoZombie

\* Recorded is generated: Histories, a sequence of sequences of lines.
step == Histories[history][line]
me == client[step.c]
Place(c, n) == IF \E k \in DOMAIN names[c] : names[c][k] = n
               THEN CHOOSE k \in DOMAIN names[c] : names[c][k] = n ELSE 0
Is(event) == step.e = event

\* The attempts that a client still has keep their names; a hand-over takes them along.
Kept == names' = [names EXCEPT ![step.c] = SubSeq(@, 1, Len(client'[step.c].tries))]
Named(n) == names' = [names EXCEPT ![step.c] =
    IF Len(client'[step.c].tries) = 1 THEN <<n>> ELSE Append(@, n)]
TakenAlong == names' = [names EXCEPT ![step.to] = names[step.c], ![step.c] = <<>>]

Sends ==
    /\ me.current = step.current
    /\ Send(step.c, step.short) \/ Renew(step.c, step.short) \/ RenewAgain(step.c, step.short)
    /\ Named(step.n)

LandsNow ==
    LET k == Place(step.c, step.n) IN
    /\ IF k > 0 THEN Land(step.c, k) /\ client[step.c].tries[k].short = step.short
       ELSE LandStray(IF step.kind = "free" THEN "free" ELSE "live", step.short)
    /\ Kept

\* What the code saw must be what the specification shows.
OwnLive == me.phase = "saw" /\ me.saw > 0 /\ me.tries[me.saw].kind = "live"

Reads ==
    LET k == Place(step.c, step.n)
        shown == IF k > 0 THEN k ELSE IF step.current THEN 0 ELSE -1 IN
    IF OwnLive \/ me.phase \in {"unsure", "given", "renew-unsure", "free-wait"} \/ (me.phase = "ready" /\ me.tries /= <<>>)
    THEN /\ Read(step.c) /\ client'[step.c].saw = shown /\ Kept
    ELSE me.phase \notin {"wait", "saw", "renew-wait", "renew-saw", "free-saw"} /\ UNCHANGED <<vars, names>>

Adopts ==
    LET k == Place(step.c, step.n) IN
    /\ \/ me.phase = "wait" /\ k = Len(me.tries) /\ Answered(step.c)
       \/ me.phase = "saw" /\ me.saw = k /\ Settle(step.c)
    /\ client'[step.c].phase = "held"
    /\ Kept

Extends ==
    LET k == Place(step.c, step.n) IN
    /\ (me.phase = "renew-wait" /\ k = Len(me.tries)) \/ (me.phase = "renew-saw" /\ me.saw = k)
    /\ Renewed(step.c)
    /\ client'[step.c].phase = "held"
    /\ Kept

Frees ==
    /\ me.current = step.current
    /\ IF step.kind = "free" THEN Release(step.c) ELSE Keep(step.c, step.short)
    /\ Named(step.n)

\* Nothing more is known of it: another acquisition gets its place.
Leaves ==
    /\ me.phase \notin Holding /\ \A k \in DOMAIN me.tries : me.tries[k].fate /= "fly"
    /\ Crash(step.c) \/ (me = Idle /\ UNCHANGED vars)
    /\ Kept

Do ==
    \/ Is("look") /\ Look(step.c) /\ Kept
    \/ Is("watch") /\ Watch(step.c, step.short) /\ Kept
    \/ Is("send") /\ Sends
    \/ Is("land") /\ LandsNow
    \/ Is("read") /\ Reads
    \/ Is("adopt") /\ Adopts
    \/ Is("extend") /\ Extends
    \/ Is("hand") /\ HandOver(step.c, step.to) /\ TakenAlong
    \/ Is("free") /\ Frees
    \/ Is("end") /\ (End(step.c) \/ (me.phase \notin Holding /\ UNCHANGED vars)) /\ Kept
    \/ Is("believes") /\ Believes(step.c) /\ UNCHANGED <<vars, names>>
    \/ Is("leave") /\ Leaves
    \/ Is("crash") /\ (Crash(step.c) \/ (me = Idle /\ UNCHANGED vars)) /\ Kept

\* No two of them are enabled at once, and none of them if the line itself is.
Silent ==
    /\ \/ Is("read") /\ me.phase \in {"wait", "renew-wait"} /\ NoAnswer(step.c)
       \/ Is("read") /\ me.phase = "saw" /\ ~OwnLive /\ Settle(step.c)
       \/ Is("read") /\ me.phase = "renew-saw" /\ me.saw = 0 /\ Renewed(step.c)
       \/ Is("read") /\ me.phase = "free-saw" /\ Freed(step.c)
       \/ (Is("look") \/ Is("watch")) /\ me.phase = "saw" /\ Settle(step.c)
       \/ Is("send") /\ me.phase = "renew-wait" /\ NoAnswer(step.c)
       \/ Is("send") /\ me.phase = "saw" /\ ~OwnLive /\ Settle(step.c)
       \/ Is("send") /\ (OwnLive \/ me.phase = "wait") /\ TooLate(step.c)
       \/ Is("send") /\ me.phase = "given" /\ step.current /\ ~me.current /\ Read(step.c)
       \/ (Is("hand") \/ Is("free")) /\ me.phase \in Holding /\ End(step.c)
       \/ (Is("hand") \/ Is("free")) /\ me.phase \in Acquiring /\ GiveUp(step.c)
       \/ Is("free") /\ me.phase = "free-saw" /\ Freed(step.c)
       \/ Is("free") /\ me.phase = "end" /\ step.current /\ ~me.current /\ Await(step.c)
    /\ Kept

TraceInit ==
    /\ Init
    /\ history \in 1..Len(Histories) /\ line = 1 /\ passed = FALSE
    /\ names = [c \in Clients |-> <<>>]

TraceNext ==
    \/ /\ line <= Len(Histories[history])
       /\ \/ /\ ~passed /\ step.after > 0
             /\ Pass(step.after) /\ passed' = TRUE /\ UNCHANGED <<line, names>>
          \/ /\ passed \/ step.after = 0
             /\ \/ Do /\ line' = line + 1 /\ passed' = FALSE
                \/ Silent /\ passed' = TRUE /\ UNCHANGED line
       /\ Sound'
       /\ UNCHANGED history
    \/ /\ line = Len(Histories[history]) + 1
       /\ PrintT(<<"accepted", history>>)
       /\ line' = line + 1 /\ UNCHANGED <<vars, history, passed, names>>

TraceSpec == TraceInit /\ [][TraceNext]_traced
===========================================================================
