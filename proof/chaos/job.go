package main

import "time"

// job is what a worker is told on its standard input.
type job struct {
	Holder string
	DSN    string
	Beside string // a way to the server that partitions of the worker spare, for effects
	Driver string
	// Unprepared is for a store that prepares no statements.
	Unprepared bool
	TTL        time.Duration
	Step       time.Duration // between two steps, on average
	Poll       time.Duration // between two attempts to acquire a lease
	Works      []assignment
	Sabotage   string
}

// assignment is a work ID that a worker competes for.
type assignment struct {
	ID       string
	Together bool // effects and checkpoints are committed together
	Reckless bool // the work goes on when its lease is lost, until the store refuses a checkpoint
}

// After the job, a worker is sent this line when its work is to come to an end. When its input ends the
// worker ends at once: nobody is left who would listen.
const finishLine = "finish"

// eventsFD is where a worker writes its events, a line each.
const eventsFD = 3

// workerVariable makes this program, or its test, a worker.
const workerVariable = "WORKLEASE_CHAOS_WORKER"
