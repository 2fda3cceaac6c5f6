------------------------------- MODULE World -------------------------------
(***************************************************************************)
(* What users, operators and writers of Hudi do with a lock, and what      *)
(* comes of it. Lease.tla has single requests; here the code reads, writes *)
(* and renews by itself, and only the outcome of a call is told: who       *)
(* believes, and what the newest record is. Rules in parentheses.          *)
(*                                                                         *)
(* Ages are in ticks. A lease ends between the ages 3 and 4, and a record  *)
(* counts as over between 4 and 5, so what a step takes does not matter.   *)
(***************************************************************************)
EXTENDS Integers, Randomization, TLC

Clients == 1..2
Ends == 4       \* no belief at this age (4)
Frees == 5      \* anybody may take it at this age (8)
Kept == 8       \* at_least, from the acquisition on (21)
Capped == 3     \* no belief that long after the acquisition, if it has at_most (27)
Unsure == 6     \* about here an ended client gives up to free its record (3)
Busy == 4       \* steps in a tick

VARIABLES
    object,     \* kind, whose, and age of the newest record
    client,     \* of each: what it does
    watched,    \* of each: for how long it has seen this version; -1: not at all
    ticket,     \* a ticket was made
    weather,    \* "fine"; "down": requests fail
    rested,     \* the lock has been free for a day
    busy,       \* steps in this tick
    store,      \* "dated"; "dateless": its answers have no Date; "unmodified": not when it was written; "bare": neither
    wrong,      \* the wall clock of client 2 is wrong
    trouble,    \* how requests fail
    may,        \* what may happen in this behaviour; drawn once, so that some go far
    did

fixed == <<store, wrong, trouble, may>>

Kinds == {"fail", "wait", "line", "keep", "cap", "ticket", "crash", "pause", "close", "signal", "hudi",
          "operator", "night", "down"}
May(kind) == kind \in may

\* Few kinds go far: some things are rare.
Foci == {{"pause", "hudi"}, {"line", "operator", "crash"}, {"line", "cap"}, {"close", "down", "cap"}, {"down", "fail"}, {"down", "signal"}}

Idle == [phase |-> "idle", age |-> 0, since |-> 0, own |-> FALSE, line |-> FALSE, keeps |-> FALSE,
         capped |-> FALSE, paused |-> FALSE]
Held(keeps, capped) == [Idle EXCEPT !.phase = "held", !.own = TRUE, !.keeps = keeps, !.capped = capped]
Rec(kind, c) == [kind |-> kind, owner |-> c, age |-> 0, lasts |-> Ends]

Max(a, b) == IF a > b THEN a ELSE b
Fine == weather = "fine"
Holds(c) == client[c].phase = "held"
Awake(c) == ~client[c].paused
Loose(kind) == kind \in {"none", "free", "dropped"}

\* (8) Without a Date that the clock agrees with only observation tells; the same of who had none.
Dated == store \in {"dated", "unmodified"}
Blind(c, o) == store /= "dated" \/ (wrong /\ (c = 2 \/ o.owner = 2))
Free(c, o, seen) ==
    \/ Loose(o.kind)
    \/ /\ o.kind \in {"live", "kept", "offer", "hudi"}
       /\ IF Blind(c, o) THEN seen > Max(o.lasts, Ends) /\ ~(o.kind = "hudi" /\ wrong /\ c = 2) ELSE o.age >= Frees

\* (11) Without Dates no token can be made after a Hudi writer.
Tokens(o) == Dated \/ o.kind \notin {"dropped", "hudi"}

Waits(cs, c) == cs[c].phase = "waits"
Each(of(_)) == <<of(1), of(2)>>         \* a tuple, which TLC prints in full
Version(cs) == Each(LAMBDA c : IF Waits(cs, c) /\ ~cs[c].paused THEN 0 ELSE -1)

\* Who waits while the store fails ends with an error that time does not mend (5, 23).
StopsWaiting(c, s, o, seen) == s.phase = "waits" /\ ~s.paused /\
    (trouble \in {"denied", "config"} \/ (trouble = "refused" /\ Free(c, o, seen)))

\* Who waits gets what has become free.
Then(o, cs, seen) ==
    LET gets(c) == Waits(cs, c) /\ ~cs[c].paused /\ Free(c, o, seen[c]) IN
    IF \E c \in Clients : gets(c)
    THEN LET c == CHOOSE c \in Clients : gets(c)
             got == [cs EXCEPT ![c] = IF Tokens(o) THEN Held(FALSE, FALSE) ELSE Idle] IN
         /\ object' = IF Tokens(o) THEN Rec("live", c) ELSE o
         /\ client' = got
         /\ watched' = IF Tokens(o) THEN Version(got) ELSE seen
    ELSE object' = o /\ client' = cs /\ watched' = seen

Wrote(o, cs) == Then(o, cs, Version(cs)) /\ rested' = FALSE
Same == UNCHANGED <<object, client, watched, rested>>

Disowned(cs) == Each(LAMBDA c : [cs[c] EXCEPT !.own = FALSE])
NobodyWaits == \A c \in Clients : ~Waits(client, c) /\ ~client[c].line
NobodyDozes == \A c \in Clients : client[c].phase /= "dozes"

Did(name, c) == did' = <<name, c, 0>> /\ busy' = busy + 1
Calm == UNCHANGED <<ticket, weather>>

(* --------------------------------- users ------------------------------- *)

Acquire(c, keeps, capped) ==
    /\ client[c] = Idle /\ Fine /\ NobodyWaits
    /\ Free(c, object, watched[c]) /\ Tokens(object)
    /\ (keeps => May("keep")) /\ (capped => May("cap")) /\ ~(keeps /\ capped)
    /\ Wrote(Rec("live", c), [Disowned(client) EXCEPT ![c] = Held(keeps, capped)])
    /\ Did(IF keeps THEN "acquire keeping" ELSE IF capped THEN "acquire capped" ELSE "acquire", c) /\ Calm

\* It is held, or the store does not answer, or nothing can be made of the record (9).
Fail(c) ==
    /\ May("fail") /\ client[c] = Idle /\ Awake(c)
    /\ ~Fine \/ object.kind = "corrupt" \/ ~Free(c, object, watched[c]) \/ ~Tokens(object)
    /\ watched' = [watched EXCEPT ![c] = IF (Fine \/ trouble = "refused") /\ @ = -1 THEN 0 ELSE @]
    /\ UNCHANGED <<object, client, rested>> /\ Did("fail", c) /\ Calm

\* (11) It takes the lock, but has no time until the token has settled: it drops the fields again.
Hurry(c) ==
    /\ May("hudi") /\ client[c] = Idle /\ Fine /\ NobodyWaits /\ store = "dated" /\ ~(wrong /\ c = 2)
    /\ object.kind \in {"dropped", "hudi"} /\ Free(c, object, watched[c])
    /\ Wrote(Rec("dropped", 0), client) /\ Did("hurry", c) /\ Calm

\* (7, 11) Its process stands still between its write and the end of the acquisition.
Doze(c) ==
    /\ May("pause") /\ client[c] = Idle /\ Fine /\ NobodyWaits /\ store = "dated" /\ ~wrong
    /\ object.kind \in {"dropped", "hudi"} /\ Free(c, object, watched[c])
    /\ Wrote(Rec("live", c), [Disowned(client) EXCEPT
            ![c] = [Held(FALSE, FALSE) EXCEPT !.phase = "dozes", !.paused = TRUE]])
    /\ Did("doze", c) /\ Calm

Wait(c) ==
    /\ May("wait") /\ client[c] = Idle /\ Fine /\ NobodyWaits
    /\ object.kind /= "corrupt" /\ ~Free(c, object, watched[c])
    /\ client' = [client EXCEPT ![c].phase = "waits"]
    /\ watched' = [watched EXCEPT ![c] = IF @ = -1 THEN 0 ELSE @]
    /\ UNCHANGED <<object, rested>> /\ Did("wait", c) /\ Calm

GiveUp(c) ==
    /\ Waits(client, c) /\ Awake(c) /\ client' = [client EXCEPT ![c] = Idle]
    /\ UNCHANGED <<object, watched, rested>> /\ Did("give up", c) /\ Calm

\* (12, 15) Another caller of the same client is in line, and gets the lock at the release.
Line(c) ==
    /\ May("line") /\ Holds(c) /\ client[c].own /\ Awake(c) /\ Fine /\ NobodyWaits /\ ~client[c].keeps /\ ~client[c].capped
    /\ client' = [client EXCEPT ![c].line = TRUE]
    /\ UNCHANGED <<object, watched, rested>> /\ Did("line", c) /\ Calm

\* (15, 16) It leaves while the lock is handed over to it.
LeaveHanded(c) ==
    /\ client[c].line /\ Holds(c) /\ client[c].own /\ Awake(c) /\ Fine
    /\ Wrote(Rec("free", c), [client EXCEPT ![c] = Idle]) /\ Did("leave handed", c) /\ Calm

LeaveLine(c) ==
    /\ client[c].line /\ client' = [client EXCEPT ![c].line = FALSE]
    /\ UNCHANGED <<object, watched, rested>> /\ Did("leave line", c) /\ Calm

NobodyInLine == \A c \in Clients : ~client[c].line /\ client[c].phase /= "dozes"

\* (6) A lease that is gone ends.
Gone(cs, c) == [cs EXCEPT ![c] = Idle]

Release(c) ==
    LET s == client[c]
        left == Kept - s.since IN
    /\ Holds(c) /\ Awake(c) /\ Calm /\ Did("release", c)
    /\ IF ~Fine THEN                                   \* (24) it is freed later
            /\ client' = [client EXCEPT ![c] = IF trouble = "refused" \/ ~s.own THEN Idle ELSE
                                               [Idle EXCEPT !.phase = "freeing", !.own = TRUE]]
            /\ s.own /\ ~s.keeps
            /\ UNCHANGED <<object, watched, rested>>
       ELSE IF ~s.own THEN Then(object, Gone(client, c), watched) /\ UNCHANGED rested
       ELSE IF s.line THEN Wrote(Rec("live", c), [client EXCEPT ![c] = Held(FALSE, FALSE)])
       ELSE IF s.keeps /\ left >= 0
            THEN Wrote([kind |-> "kept", owner |-> c, age |-> Ends - left, lasts |-> left], [client EXCEPT ![c] = Idle])
       ELSE Wrote(Rec("free", c), [client EXCEPT ![c] = Idle])

\* (29)
Transfer(c) ==
    /\ May("ticket") /\ Holds(c) /\ Awake(c) /\ Fine /\ client[c].own
    /\ ~client[c].line /\ ~client[c].keeps /\ ~client[c].capped
    /\ Wrote(Rec("offer", c), [client EXCEPT ![c] = Idle])
    /\ ticket' = TRUE /\ UNCHANGED weather /\ Did("transfer", c)

Redeem(c) ==
    /\ ticket /\ client[c] = Idle /\ Fine /\ NobodyWaits
    /\ IF object.kind = "offer"
       THEN Wrote(Rec("live", c), [Disowned(client) EXCEPT ![c] = Held(FALSE, FALSE)]) /\ Did("redeem", c)
       ELSE /\ object.kind /= "corrupt" /\ Did("redeem spent", c)
            /\ watched' = [watched EXCEPT ![c] = IF @ = -1 THEN 0 ELSE @] /\ UNCHANGED <<object, client, rested>>
    /\ Calm

(* ------------------------------- processes ----------------------------- *)

Crash(c) ==
    /\ May("crash") /\ client[c].phase \in {"held", "waits", "freeing"} /\ Awake(c) /\ ~client[c].line
    /\ ~client[c].capped
    /\ client' = [client EXCEPT ![c] = Idle] /\ watched' = [watched EXCEPT ![c] = -1]
    /\ UNCHANGED <<object, rested>> /\ Did("crash", c) /\ Calm

Pause(c) ==
    /\ May("pause") /\ client[c].phase \in {"held", "waits"} /\ Awake(c) /\ Fine /\ ~client[c].line
    /\ ~client[c].capped
    /\ client' = [client EXCEPT ![c].paused = TRUE]
    /\ UNCHANGED <<object, watched, rested>> /\ Did("pause", c) /\ Calm

Resume(c) ==
    LET s == [client[c] EXCEPT !.paused = FALSE] IN
    /\ client[c].paused /\ Did("resume", c) /\ Calm /\ (s.phase = "dozes" => Fine)
    /\ IF s.phase = "dozes"
       THEN IF s.own THEN Wrote(Rec("live", c), [client EXCEPT ![c] = Held(FALSE, FALSE)])
            ELSE Then(object, [client EXCEPT ![c] = [Idle EXCEPT !.phase = "waits"]], [watched EXCEPT ![c] = 0])
                 /\ UNCHANGED rested
       ELSE IF s.phase = "held" /\ Fine
       THEN IF s.own THEN Wrote([object EXCEPT !.age = 0], [client EXCEPT ![c] = [s EXCEPT !.age = 0]])
            ELSE Then(object, [client EXCEPT ![c] = Idle], watched) /\ UNCHANGED rested
       ELSE IF Fine THEN Then(object, [client EXCEPT ![c] = s], [watched EXCEPT ![c] = IF s.phase = "waits" /\ @ = -1 THEN 0 ELSE @]) /\ UNCHANGED rested
       ELSE /\ client' = [client EXCEPT ![c] = IF StopsWaiting(c, s, object, watched[c]) THEN Idle ELSE s]
            /\ UNCHANGED <<object, watched, rested>>

\* (18, 24, 25) The client is closed, and another one takes its place.
Close(c) ==
    /\ May("close") /\ client[c].phase \in {"held", "idle", "freeing"} /\ Awake(c) /\ ~client[c].line /\ ~client[c].keeps
    /\ IF Fine /\ client[c].own
       THEN Wrote(Rec("free", c), [client EXCEPT ![c] = Idle])
       ELSE /\ client' = [client EXCEPT ![c] = Idle] /\ watched' = [watched EXCEPT ![c] = -1]
            /\ UNCHANGED <<object, rested>>
    /\ Did("close", c) /\ Calm

\* (18) A signal that the process survives.
Signal(c) ==
    /\ May("signal") /\ Holds(c) /\ client[c].own /\ Awake(c) /\ Fine /\ ~client[c].line /\ ~client[c].keeps
    /\ Wrote(Rec("free", c), [client EXCEPT ![c] = Idle]) /\ Did("signal", c) /\ Calm

\* (24) Another one says only that the record is still to be freed.
SignalLate(c) ==
    /\ May("signal") /\ client[c].phase = "freeing" /\ ~Fine
    /\ UNCHANGED <<object, client, watched, rested>> /\ Did("signal", c) /\ Calm

(* ------------------------------- the others ---------------------------- *)

HudiTake ==
    /\ May("hudi") /\ Fine /\ NobodyWaits /\ NobodyDozes /\ object.kind /= "corrupt"
    /\ Loose(object.kind) \/ (object.age >= Frees /\ ~(wrong /\ object.owner = 2))
    /\ Wrote(Rec("hudi", 0), Disowned(client)) /\ Did("hudi take", 0) /\ Calm

HudiRelease ==
    /\ object.kind = "hudi" /\ Fine /\ Wrote(Rec("dropped", 0), client) /\ Did("hudi release", 0) /\ Calm

\* (10)
BreakLock ==
    /\ May("operator") /\ Fine /\ NobodyInLine /\ object.kind \in {"live", "kept", "offer", "corrupt"}
    /\ object.age < Frees \/ object.kind = "corrupt"          \* what is free is left as it is
    /\ Wrote(Rec(IF object.kind = "corrupt" THEN "dropped" ELSE "free", 0), Disowned(client))
    /\ Did("break", 0) /\ Calm

\* (15) It is broken while another caller is in line, and handed over before its holder knows.
BreakInLine(c) ==
    /\ May("operator") /\ Fine /\ Holds(c) /\ client[c].own /\ client[c].line
    /\ Wrote(Rec("live", c), [client EXCEPT ![c] = Held(FALSE, FALSE)]) /\ Did("break in line", c) /\ Calm

Delete ==
    /\ May("operator") /\ Fine /\ NobodyInLine /\ object.kind = "live" /\ Wrote(Rec("none", 0), Disowned(client))
    /\ Did("delete", 0) /\ Calm

Corrupt ==
    /\ May("operator") /\ Fine /\ object.kind = "live" /\ NobodyWaits /\ NobodyDozes
    /\ Wrote(Rec("corrupt", 0), Disowned(client)) /\ Did("corrupt", 0) /\ Calm

Night ==
    /\ May("night") /\ Fine /\ \A c \in Clients : client[c] = Idle
    /\ object' = [object EXCEPT !.age = 99] /\ watched' = Each(LAMBDA c : IF watched[c] >= 0 THEN 99 ELSE -1)
    /\ rested' = (rested \/ object.kind = "free" \/
                  (object.kind \in {"live", "kept", "offer"} /\ ~(wrong /\ object.owner = 2))) /\ UNCHANGED <<client, ticket, weather>>
    /\ did' = <<"night", 0, 0>> /\ busy' = 0

\* (22)
Prune ==
    /\ May("night") /\ Fine /\ Did("prune", 0) /\ Calm
    /\ IF rested /\ store = "dated" THEN Wrote(Rec("none", 0), client) ELSE Same

(* ------------------------------- the store ----------------------------- *)

Down ==
    /\ May("down") /\ Fine /\ \A c \in Clients : ~client[c].line /\ ~client[c].capped /\ ~client[c].keeps
    /\ weather' = "down" /\ Did("down", 0)
    /\ client' = Each(LAMBDA c : IF StopsWaiting(c, client[c], object, watched[c]) THEN Idle ELSE client[c])
    /\ UNCHANGED <<object, watched, rested, ticket>>

\* Who still believes renews; who could not free its record does it now (3).
Clear ==
    LET frees(c) == client[c].phase = "freeing"
        renews(c) == Holds(c) /\ client[c].own /\ Awake(c)
        cs == Each(LAMBDA c :
            IF frees(c) \/ (Holds(c) /\ ~client[c].own /\ Awake(c)) THEN Idle
            ELSE IF renews(c) THEN [client[c] EXCEPT !.age = 0] ELSE client[c]) IN
    /\ ~Fine /\ \A c \in Clients : ~(frees(c) /\ client[c].age = Unsure)
    /\ weather' = "fine" /\ UNCHANGED ticket /\ Did("clear", 0)
    /\ IF \E c \in Clients : frees(c) THEN Wrote(Rec("free", 0), cs)
       ELSE IF \E c \in Clients : renews(c) THEN Wrote([object EXCEPT !.age = 0], cs)
       ELSE Then(object, cs, Each(LAMBDA c : IF Waits(cs, c) /\ watched[c] = -1 THEN 0 ELSE watched[c]))
            /\ UNCHANGED rested

Reaps == trouble \in {"lost", "silent", "config"}

\* One tick later for a client.
Older(c) ==
    LET s == client[c]
        t == s.age + 1
        since == IF s.since > Kept THEN s.since ELSE s.since + 1
        sees == Awake(c) /\ (Fine \/ trouble = "refused") IN
    CASE s.phase = "held" /\ ~s.own /\ sees -> Gone(client, c)[c]                   \* (6)
      [] s.phase = "held" /\ s.capped /\ since >= Capped -> Idle                    \* (27)
      [] s.phase = "held" /\ s.own /\ Fine /\ Awake(c) -> [s EXCEPT !.age = 0, !.since = since]
      [] s.phase = "held" /\ t < Ends -> [s EXCEPT !.age = t, !.since = since]
      [] s.phase = "held" /\ ~Fine /\ Awake(c) /\ s.own /\ Reaps -> [Idle EXCEPT !.phase = "freeing", !.own = TRUE, !.age = 1]
      [] s.phase = "held" -> [Idle EXCEPT !.paused = s.paused]
      [] s.phase = "dozes" -> [s EXCEPT !.age = IF t > 9 THEN 9 ELSE t]
      [] s.phase = "freeing" -> IF t > Unsure THEN Idle ELSE [s EXCEPT !.age = t]
      [] OTHER -> s

Tick ==
    LET cs == Each(Older)
        renewed == \E c \in Clients : Fine /\ cs[c].phase = "held" /\ cs[c].own /\ ~cs[c].paused
        ended == \E c \in Clients : client[c].capped /\ client[c].own /\ ~cs[c].capped
        seen == Each(LAMBDA c : IF watched[c] >= 0 /\ watched[c] < 9 THEN watched[c] + 1 ELSE watched[c])
        old == IF object.age < 9 THEN [object EXCEPT !.age = @ + 1] ELSE object IN
    /\ \A c \in Clients : ~(client[c].paused /\ client[c].age = Ends - 1 /\ client[c].phase = "held" /\ ~Fine)
    /\ busy' = 0 /\ did' = <<"tick", 0, 0>> /\ Calm
    /\ IF ended THEN Wrote(Rec("free", 0), cs)
       ELSE IF renewed THEN Wrote([object EXCEPT !.age = 0], cs)
       ELSE IF Fine THEN Then(old, cs, seen) /\ UNCHANGED rested
       ELSE /\ object' = old /\ watched' = seen /\ UNCHANGED rested
            /\ client' = Each(LAMBDA c : IF StopsWaiting(c, cs[c], old, seen[c]) THEN Idle ELSE cs[c])

Next ==
    \/ Tick
    \/ /\ busy < Busy
       /\ \/ HudiTake \/ HudiRelease \/ BreakLock \/ Delete \/ Corrupt \/ Night \/ Prune \/ Down \/ Clear
          \/ \E c \in Clients :
                \/ \E keeps, capped \in BOOLEAN : Acquire(c, keeps, capped)
                \/ Fail(c) \/ Hurry(c) \/ Doze(c) \/ BreakInLine(c) \/ Wait(c) \/ GiveUp(c) \/ Line(c) \/ LeaveLine(c) \/ LeaveHanded(c) \/ Release(c) \/ Transfer(c) \/ Redeem(c)
                \/ Crash(c) \/ Pause(c) \/ Resume(c) \/ Close(c) \/ Signal(c) \/ SignalLate(c)

Init ==
    /\ object = Rec("none", 0) /\ client = <<Idle, Idle>> /\ watched = <<-1, -1>>
    /\ ticket = FALSE /\ weather = "fine" /\ rested = FALSE /\ busy = 0
    /\ store \in {"dated", "dateless", "unmodified", "bare"} /\ wrong \in BOOLEAN /\ (store /= "dated" => ~wrong)
    /\ trouble \in {"lost", "silent", "denied", "refused", "config"} /\ may \in Foci \union RandomSubset(6, SUBSET Kinds)
    /\ did = <<"init", 0, 0>>

\* While nobody has broken or deleted anything.
OneBeliever == May("operator") \/ ~(Holds(1) /\ Holds(2))
Spec == Init /\ [][Next /\ UNCHANGED fixed]_<<object, client, watched, ticket, weather, rested, busy, fixed, did>>
===========================================================================
