/*
 * One lease: its row in the store, three holders that want it, and a network between them that loses
 * and delays what it carries. README.md says what is checked, within which bounds, and how to run it.
 *
 * Every step is atomic and any step may follow any other, so a holder may pause between any two of its
 * steps for as long as it likes, also between deciding to write and writing. Nothing counts time since
 * the beginning: a tick takes one from what is left of the lease and of each window, so there is no
 * last tick, and an offset between two clocks has no place to enter.
 */

/* The bounds. The runner sets others. */
#ifndef TTL
#define TTL     2	/* ticks of the store's clock */
#endif
#ifndef TENURES
#define TENURES 3	/* tokens that may be drawn, 7 at most */
#endif
#ifndef STEPS
#define STEPS   2	/* the work is done once checkpoint STEPS is written, 6 at most */
#endif
#ifndef SKEW
#define SKEW    0	/* by how many ticks a span measured by a holder may be too short, 3 at most */
#endif
#ifndef MARGIN
#define MARGIN  0	/* by how many ticks a holder stops before its window closes */
#endif
#ifndef EXITS
#define EXITS   2	/* exits that may be declared: abandoned, and finished if 2 */
#endif
#ifndef LATES
#define LATES   1	/* calls that were given up and may still arrive, 1 at most */
#endif
#define HOLDERS 3

/* What is promised, one bit each. A run with a rule broken on purpose looks at one promise only. */
#define WRITER  1	/* no write by a superseded holder is accepted */
#define STATE   2	/* the state is never older than an accepted checkpoint */
#define FRESH   4	/* no two accepted checkpoints of one work stand for the same step */
#define EXIT    8	/* a successor reads the exit and the holder ID that its predecessor left */
#define LAST   16	/* what a holder declares is its last word */
#define TOKENS 32	/* tokens strictly rise */
#define WINDOW 64	/* no holder believes itself safe once another tenure has begun */
#define EXPIRY 128	/* no window is open on a lease that is over */
#define GOESON 256	/* whoever is left alone goes on within a TTL */
#ifndef CHECK
#define CHECK  511
#endif
#define promise(which, what) assert(!(CHECK & (which)) || (what))

/* Exits. */
#define NONE      0
#define FINISHED  1
#define ABANDONED 2
#define EXPIRED   3

/* Calls. */
#define IDLE       0
#define ACQUIRE    1
#define CHECKPOINT 2
#define RENEW      3
#define RELEASE    4
#define FORGET     5

/* Answers. A call without one has not reached the store. */
#define OK     1
#define FENCED 2
#define LAPSED 3	/* ErrLeaseExpired */

#define UNKNOWN 7	/* the step of a holder that has not read the checkpoint yet */
#define NOBODY  3

/* The store. left is the time until the expiry: at zero, the expiry instant, the lease is over. */
typedef Row {
	unsigned there : 1;
	unsigned holder : 2;
	unsigned token : 3;
	unsigned left : 3;
	unsigned state : 3;
	unsigned exit : 2;
	unsigned prevExit : 2;
	unsigned prevHolder : 2
};

/* What a holder has in its memory, and loses in a crash. */
typedef Holder {
	unsigned token : 3;	/* 0: none */
	unsigned step : 3;	/* how far its work has come */
	unsigned window : 3;	/* how long it may be sure of the lease, by its own clock */
	unsigned leaving : 1;	/* it has called Release or Forget */
	unsigned skew : 2;	/* how many ticks its clock is ahead, if SKEW */
	unsigned slips : 1	/* and will miss the next one */
};

/* A call from its local start until the holder has the answer or gives it up. */
typedef Call {
	unsigned op : 3;
	unsigned token : 3;
	unsigned arg : 3;	/* the state to write, or that was read; the exit to declare */
	unsigned age : 3;	/* since the local start, by the holder's clock; stops at TTL */
	unsigned answer : 2;
	unsigned from : 2	/* who made it, if it is late */
};

/* What really happened, for the promises to be compared with. No rule of the protocol reads it. */
typedef Truth {
	unsigned tenure : 3;	/* token of the last tenure that began */
	unsigned gone : 1;	/* its row has been forgotten */
	unsigned left : 2;	/* what it declared */
	unsigned top : 3;	/* newest checkpoint that was accepted */
	unsigned writer : 3;	/* token it came with */
	unsigned prevExit : 2;	/* how the tenure before it left */
	unsigned prevHolder : 2
};

Row row;
Holder holder[HOLDERS];
Call call[HOLDERS];
Call late;		/* a call that was given up and may still reach the store */
Truth truth;
byte drawn;		/* the store's sequence of tokens */
byte met;		/* holders that have been seen: they are alike, so they come in order */
byte alone;		/* 1 + the holder that is left alone, or STOPPED */
byte waited;		/* how many ticks it has waited since */
byte calls;		/* how many calls it has made since */
bool refused;		/* its last one was answered: held */
byte i;			/* of loops; zero between steps */
#define STOPPED 9

#define name(h) ('A' + h)

/* Success opens a window, and is still possible. */
#define extends(c) ((c.op == ACQUIRE || c.op == CHECKPOINT || c.op == RENEW) && c.answer <= OK)

/* ------ the store: the table of the contract, one atomic step for each call ------ */

/* "Matches" means work ID, holder ID and fencing token all equal the stored ones. */
#define matches(h, c) (row.there && row.holder == h && row.token == c.token)

#if defined(ANYBODY_CHECKPOINTS)
#define mayCheckpoint(h, c) (row.there)
#elif defined(HOLDER_ID_CHECKPOINTS)
#define mayCheckpoint(h, c) (row.there && row.holder == h)
#else
#define mayCheckpoint(h, c) matches(h, c)
#endif

/* "Checkpoint: matches and no exit is declared; a lapsed, unclaimed lease is revived." */
#ifdef CHECKPOINT_REVIVES_RELEASED
#define released false
#else
#define released (row.exit != NONE)
#endif

/* "The token is drawn after the row is locked." */
#if defined(TOKEN_DRAWN_EARLY)
#define drawToken(c) c.token = c.arg
#elif defined(TOKEN_FROM_ROW)
#define drawToken(c) c.token = (row.there -> row.token + 1 : 1); drawn++
#else
#define drawToken(c) drawn++; c.token = drawn
#endif

/* Acquire is "one atomic step", not a look and then a write. */
#ifdef ACQUIRE_LOOKS_FIRST
#define looks(c) (c.arg == 0)
#define held(c) (looks(c) && row.there && row.left > 0)
#else
#define looks(c) false
#define held(c) (row.there && row.left > 0)
#endif

inline accepted(c)
{
	promise(WRITER, c.token == truth.tenure && !truth.gone);
	promise(LAST, truth.left == NONE)
}

inline clear(c) { c.op = IDLE; c.token = 0; c.arg = 0; c.age = 0; c.answer = 0; c.from = 0 }

inline lose(h) { holder[h].token = 0; holder[h].step = 0; holder[h].window = 0; holder[h].leaving = false }

/* "ReadCheckpoint: matches, expired or not." It changes nothing, so its delays are pauses of the holder. */
inline readCheckpoint(h)
{
	if
	:: matches(h, holder[h]) ->
		printf("%c reads checkpoint %d; the exit before it was %d\n", name(h), row.state, row.prevExit);
		promise(STATE, row.state == truth.top);
		promise(EXIT, row.prevExit == truth.prevExit && row.prevHolder == truth.prevHolder);
		holder[h].step = row.state
	:: else -> lose(h); printf("%c is fenced as it reads\n", name(h))
	fi
}

inline serve(h, c)
{
	if
	:: c.op == ACQUIRE ->
		if
		/* "No row, or the row's expiry has passed"; a lease is not re-entrant. */
		:: held(c) ->
			/* Who hears that knows no more than who hears nothing: the answer needs no way back. */
			refused = (alone != 0);
			clear(c);
			printf("store: %c's Acquire: held by %c\n", name(h), name(row.holder))
		:: looks(c) && !held(c) ->
			c.arg = 1;
			printf("store: %c's Acquire finds the lease free\n", name(h))
		:: else ->
			/* "Captures the previous exit (none if there was no row, the declared exit if there was
			   one, else expired) and previous holder ID (empty with none); clears the declared exit." */
			if
			:: !row.there -> row.prevExit = NONE; row.prevHolder = NOBODY
			:: else ->
				row.prevExit = (row.exit == NONE -> EXPIRED : row.exit);
				row.prevHolder = row.holder
			fi;
			/* The truth of the same, from what was accepted. */
			if
			:: truth.tenure == 0 || truth.gone -> truth.prevExit = NONE; truth.prevHolder = NOBODY
			:: else ->
				truth.prevExit = (truth.left == NONE -> EXPIRED : truth.left);
				truth.prevHolder = row.holder
			fi;
			drawToken(c);
			printf("store: %c's Acquire: token %d\n", name(h), c.token);
			promise(TOKENS, c.token > truth.tenure);
			truth.tenure = c.token; truth.gone = false; truth.left = NONE;
			/* "Draws a new token; stores holder and now+ttl; keeps the checkpoint." */
			row.there = true; row.holder = h; row.token = c.token; row.left = TTL; row.exit = NONE;
			c.arg = 0; c.answer = OK
		fi
	:: c.op == CHECKPOINT ->
		/* "Stores state and now+ttl in one step; exit columns untouched." */
		if
		:: !mayCheckpoint(h, c) ->
			c.answer = FENCED;
			printf("store: %c's Checkpoint(%d) with token %d is fenced\n", name(h), c.arg, c.token)
		:: mayCheckpoint(h, c) && released ->
			c.answer = LAPSED;
			printf("store: %c's Checkpoint(%d) with token %d: already released\n", name(h), c.arg, c.token)
		:: else ->
			printf("store: %c's Checkpoint(%d) with token %d is accepted\n", name(h), c.arg, c.token);
			accepted(c);
			promise(STATE, c.token > truth.writer || (c.token == truth.writer && c.arg >= truth.top));
			promise(FRESH, c.arg > truth.top);
			row.state = c.arg; row.left = TTL;
			truth.top = c.arg; truth.writer = c.token; truth.left = NONE;
			c.answer = OK
		fi
	:: c.op == RENEW ->
		/* "Matches and not expired"; fencing is checked before expiry. */
		if
		:: !matches(h, c) -> c.answer = FENCED; printf("store: %c's Renew is fenced\n", name(h))
		:: matches(h, c) && (row.left == 0 || row.exit != NONE) ->
			c.answer = LAPSED;
			printf("store: %c's Renew: lapsed or released\n", name(h))
		:: else ->
			accepted(c);
			row.left = TTL; c.answer = OK;
			printf("store: %c's Renew is accepted\n", name(h))
		fi
	:: c.op == RELEASE ->
		/* "Records the exit and expires the lease at once"; a second Release cannot change the first. */
		if
		:: !matches(h, c) -> c.answer = FENCED; printf("store: %c's Release is fenced\n", name(h))
		:: matches(h, c) && (row.left == 0 || row.exit != NONE) ->
			c.answer = LAPSED;
			printf("store: %c's Release: lapsed or released\n", name(h))
		:: else ->
			accepted(c);
			row.exit = c.arg; row.left = 0; truth.left = c.arg;
			c.answer = OK;
			printf("store: %c's Release(%d) is accepted\n", name(h), c.arg)
		fi
	:: c.op == FORGET ->
		/* "Matches, held, released or lapsed: the row is gone; the next holder sees none." */
		if
		:: !matches(h, c) -> c.answer = FENCED; printf("store: %c's Forget is fenced\n", name(h))
		:: else ->
			promise(WRITER, c.token == truth.tenure && !truth.gone);
			row.there = false; row.holder = 0; row.token = 0; row.left = 0; row.state = 0;
			row.exit = NONE; row.prevExit = NONE; row.prevHolder = 0;
			truth.gone = true; truth.left = NONE; truth.top = 0; truth.writer = 0;
			c.answer = OK;
			printf("store: %c's Forget is accepted\n", name(h))
		fi
	fi;
#ifdef WINDOW_FROM_EXPIRES_AT
	c.age = 0;	/* the answer names the expiry, by the store's clock */
#endif
	if
	:: !extends(c) -> c.age = 0	/* of no more interest */
	:: else
	fi;
	believed()
}

/* ------ the window ------ */

/* "The window never outlasts the true expiry": what each holder is sure of, held against the truth. */
inline believed()
{
	for (i : 0 .. HOLDERS - 1) {
		if
		:: holder[i].window > MARGIN ->
			promise(WINDOW, holder[i].token == truth.tenure);
			promise(EXPIRY, matches(i, holder[i]) && row.left > 0 && row.exit == NONE)
		:: else
		fi
	};
	i = 0
}

/* "It ends at the local start of the call + TTL." */
#if defined(WINDOW_FROM_ANSWER)
#define opened(c) TTL
#elif defined(WINDOW_FROM_EXPIRES_AT)
#define opened(c) (TTL - c.age + 1)	/* by a local clock that is a tick behind the store's */
#else
#define opened(c) (TTL - c.age)
#endif

/* A tick of h's own clock. */
inline passes(h)
{
	if
	:: holder[h].window > 0 -> holder[h].window--
	:: else
	fi;
	if
	:: extends(call[h]) && call[h].age < TTL -> call[h].age++
	:: else
	fi
}

/* ------ the holders ------ */

inline begin(h, what, with)
{
	call[h].op = what; call[h].token = holder[h].token; call[h].arg = with
}

/* From the beginning of a Release or a Forget, the holder relies on nothing any more. */
inline leave(h) { holder[h].leaving = true; holder[h].window = 0; holder[h].step = 0 }

/* The holder stops waiting for its call, which may still arrive at any time. If it is not to, it was lost. */
inline delay(h)
{
	late.op = call[h].op; late.token = call[h].token; late.arg = call[h].arg; late.from = h
}

/* A Checkpoint that was given up does not arrive after a later one of its tenure. */
#ifdef CHECKPOINTS_OVERTAKE
#define inOrder(h) true
#else
#define inOrder(h) !(late.op == CHECKPOINT && late.from == h && late.token == holder[h].token)
#endif

inline take(h)
{
	if
	:: call[h].answer == OK && call[h].op == ACQUIRE ->
		/* "A lease whose window is already closed when Acquire returns is no lease." */
		if
		:: opened(call[h]) > 0 ->
			holder[h].token = call[h].token; holder[h].step = UNKNOWN; holder[h].window = opened(call[h])
		:: else
		fi
	:: call[h].answer == OK && (call[h].op == CHECKPOINT || call[h].op == RENEW) ->
		/* "A successful Renew or Checkpoint moves the window; a failed one never does." */
		holder[h].window = opened(call[h])
	:: call[h].answer == OK && (call[h].op == RELEASE || call[h].op == FORGET) -> lose(h)
	:: call[h].answer == FENCED -> lose(h)
	:: call[h].answer == LAPSED && call[h].op == RELEASE -> lose(h)
	:: call[h].answer == LAPSED && call[h].op != RELEASE ->
		holder[h].window = 0	/* a Checkpoint may still revive it */
	fi;
	printf("%c has the answer, its window is %d\n", name(h), holder[h].window);
	clear(call[h]);
	believed()
}

inline leaveAlone(h)
{
	alone = h + 1;
	for (i : 0 .. HOLDERS - 1) {
		clear(call[i]);
		holder[i].skew = 0; holder[i].slips = false;
		if
		:: i != h -> lose(i)
		:: else
		fi
	};
	i = 0;
	clear(late);
	printf("%c is left alone\n", name(h))
}

/* It has gone on, and nothing more is of interest. */
inline stop(h)
{
	clear(call[h]); lose(h);
	alone = STOPPED; waited = 0; calls = 0
}

/* Release has failed: may the holder stay after all? */
#ifdef STAYS_AFTER_RELEASE
#define comeBack(h) holder[h].leaving = false
#else
#define comeBack(h) skip
#endif

#define arrives(c) (c.op != IDLE && c.answer == 0 && !(c.op == ACQUIRE && drawn == TENURES))

#define idle   (alone == 0 && call[me].op == IDLE)
#define holds  (idle && holder[me].token != 0)
#define works  (holds && !holder[me].leaving)

proctype Life(byte me)
{
	do
	:: d_step { idle && holder[me].token == 0 && drawn < TENURES && me <= met ->
		if
		:: me == met -> met++
		:: else
		fi;
		begin(me, ACQUIRE, 0);
#ifdef TOKEN_DRAWN_EARLY
		drawn++; call[me].arg = drawn;
#endif
		printf("%c begins Acquire\n", name(me)) }
	:: d_step { works && holder[me].step == UNKNOWN -> readCheckpoint(me) }
	:: d_step { works && holder[me].step < STEPS && inOrder(me) ->	/* it resumes from what it read */
		holder[me].step++;
		begin(me, CHECKPOINT, holder[me].step);
		printf("%c decides to write checkpoint %d\n", name(me), holder[me].step) }
	:: d_step { works -> begin(me, RENEW, 0); printf("%c begins Renew\n", name(me)) }
	:: d_step { holds && EXITS == 2 -> leave(me); begin(me, RELEASE, FINISHED); printf("%c begins Release(finished)\n", name(me)) }
	:: d_step { holds -> leave(me); begin(me, RELEASE, ABANDONED); printf("%c begins Release(abandoned)\n", name(me)) }
	:: d_step { holds -> leave(me); begin(me, FORGET, 0); printf("%c begins Forget\n", name(me)) }
	:: d_step { alone == 0 && call[me].answer != 0 -> take(me) }
	:: d_step { alone == 0 && call[me].op != IDLE ->
		printf("%c gives up waiting\n", name(me));
		comeBack(me); clear(call[me]) }
	:: d_step { alone == 0 && LATES == 1 && arrives(call[me]) && late.op == IDLE ->
		printf("%c gives up waiting, its call is still on the way\n", name(me));
		comeBack(me); delay(me); clear(call[me]) }
	:: d_step { holds ->	/* it comes back at once, with its ID only */
		printf("%c crashes\n", name(me));
		lose(me) }

#ifdef GAINS
	/* Its clock gains on the store's, by as much as it likes unless SKEW also lets it fall back. */
	:: d_step { alone == 0 && (SKEW == 0 || holder[me].skew < SKEW) &&
			(holder[me].window > 0 || (extends(call[me]) && call[me].age < TTL)) ->
		passes(me);
#if SKEW > 0
		holder[me].skew++;
#endif
		printf("%c's clock gains a tick\n", name(me)) }
#endif
#if SKEW > 0
	:: d_step { alone == 0 && holder[me].skew > 0 && !holder[me].slips -> holder[me].slips = true }
#endif

	/* Faults stop. The others never come back, the network is empty: what can it do? */
	:: d_step { alone == 0 && drawn < TENURES && me <= met -> leaveAlone(me) }
	:: d_step { alone == me + 1 && call[me].op == IDLE && !refused ->
		if
		:: holder[me].token == 0 -> begin(me, ACQUIRE, 0)
		:: holder[me].token != 0 && !holder[me].leaving -> begin(me, RENEW, 0)
		:: else -> begin(me, RELEASE, ABANDONED)
		fi;
		calls++;
		promise(GOESON, calls <= TTL + 2) }
	:: d_step { alone == me + 1 && call[me].answer != 0 ->
		if
		:: call[me].answer == OK -> stop(me)
		:: else -> clear(call[me]); lose(me)
		fi }
	od
}

/* ------ the network ------ */

proctype Network(byte from)
{
	do
	:: d_step { arrives(call[from]) -> serve(from, call[from]) }
	:: d_step { alone == 0 && late.from == from && arrives(late) ->
		printf("late: ");
		serve(from, late);
		clear(late) }
	od
}

/* ------ the clocks ------ */

inline tick()
{
	if
	:: row.left > 0 -> row.left--
	:: else
	fi;
	for (i : 0 .. HOLDERS - 1) {
		if
		:: holder[i].slips -> holder[i].slips = false; holder[i].skew--
		:: else -> passes(i)
		fi
	};
	printf("a tick: the lease has %d left\n", row.left);
	believed()
}

proctype Clocks()
{
	do
	:: d_step { alone == 0 -> tick() }
	:: d_step { refused ->	/* the one that is alone waits */
		tick();
		refused = false; waited++;
		promise(GOESON, waited <= TTL) }
	:: alone == STOPPED -> skip
	od
}

init
{
	atomic {
		run Clocks();
		run Life(0); run Life(1); run Life(2);
		run Network(0); run Network(1); run Network(2)
	}
}
