// Command judge reads histories from standard input and prints a verdict for each: ok, illegal or undecided.
//
// Porcupine decides whether the operations of a history, each of which takes effect at one instant between
// its call and its return, have an order that the model allows.
package main

import (
	"encoding/json"
	"log"
	"os"
	"time"

	"github.com/anishathalye/porcupine"
)

// limit is the time for one history; the search can take exponential time.
const limit = 2 * time.Minute

type operation struct {
	Kind   string `json:"kind"`
	ID     string `json:"id"`
	Seen   string `json:"seen"`
	Side   string `json:"side"`
	Slot   int    `json:"slot"`
	Token  int64  `json:"token"`
	Value  int64  `json:"value"`
	Call   int64  `json:"call"`
	Return int64  `json:"return"`
}

type history struct {
	Name       string      `json:"name"`
	Model      string      `json:"model"`
	Slots      int         `json:"slots"`
	Operations []operation `json:"operations"`
}

type verdict struct {
	Name    string `json:"name"`
	Verdict string `json:"verdict"`
}

// mutex is a lock: at most one holder, and the token of each is higher than all before.
type mutex struct{ holder, last int64 }

func (now mutex) step(op operation) (bool, mutex) {
	switch op.Kind {
	case "acquire":
		return now.holder == 0 && op.Token > now.last, mutex{op.Token, op.Token}
	case "end":
		return now.holder == op.Token, mutex{0, now.last}
	}
	return false, now
}

func stepMutex(state, input, _ interface{}) (bool, interface{}) {
	allowed, next := state.(mutex).step(input.(operation))
	return allowed, next
}

// mostSlots is how many slots a lock that several may hold has at most: its state must be comparable.
const mostSlots = 8

// slots are those of a semaphore, or of the readers: each is a mutex.
type slots [mostSlots]mutex

func (now slots) held() int {
	count := 0
	for _, each := range now {
		if each.holder != 0 {
			count++
		}
	}
	return count
}

func (now slots) step(op operation) (bool, slots) {
	if op.Slot < 0 || op.Slot >= mostSlots {
		return false, now
	}
	allowed, next := now[op.Slot].step(op)
	now[op.Slot] = next // a copy: it is an array
	return allowed, now
}

// stepSemaphore allows as many holders as there are slots, whatever slots they have.
func stepSemaphore(most int) func(state, input, output interface{}) (bool, interface{}) {
	return func(state, input, _ interface{}) (bool, interface{}) {
		allowed, next := state.(slots).step(input.(operation))
		return allowed && next.held() <= most, next
	}
}

// readWrite is a reader-writer lock: any number of readers, or one writer alone.
type readWrite struct {
	writer  mutex
	readers slots
}

func stepReadWrite(state, input, _ interface{}) (bool, interface{}) {
	now, op := state.(readWrite), input.(operation)
	var allowed bool
	switch op.Side {
	case "read":
		allowed, now.readers = now.readers.step(op)
	case "write":
		allowed, now.writer = now.writer.step(op)
	}
	return allowed && (now.writer.holder == 0 || now.readers.held() == 0), now
}

// counter is a fenced object: it refuses the token of an older holder, and no update is lost.
type counter struct {
	value, token int64
	writer       string
}

func stepCounter(state, input, _ interface{}) (bool, interface{}) {
	now, op := state.(counter), input.(operation)
	next := counter{now.value + 1, op.Token, op.ID}
	switch op.Kind {
	case "add":
		return op.Token >= now.token && op.Seen == now.writer && op.Value == next.value, next
	case "open": // nobody knows when it was applied, but somebody saw its result
		return op.Token >= now.token, next
	case "stale":
		return op.Token < now.token, now
	case "read":
		return now == counter{op.Value, op.Token, op.Seen}, now
	}
	return false, now
}

func model(of history) (porcupine.Model, bool) {
	switch of.Model {
	case "mutex":
		return porcupine.Model{Init: func() interface{} { return mutex{} }, Step: stepMutex}, true
	case "counter":
		return porcupine.Model{Init: func() interface{} { return counter{} }, Step: stepCounter}, true
	case "semaphore":
		return porcupine.Model{Init: func() interface{} { return slots{} }, Step: stepSemaphore(of.Slots)}, true
	case "rwlock":
		return porcupine.Model{Init: func() interface{} { return readWrite{} }, Step: stepReadWrite}, true
	}
	return porcupine.Model{}, false
}

func main() {
	var histories []history
	if err := json.NewDecoder(os.Stdin).Decode(&histories); err != nil {
		log.Fatal(err)
	}
	names := map[porcupine.CheckResult]string{
		porcupine.Ok: "ok", porcupine.Illegal: "illegal", porcupine.Unknown: "undecided",
	}
	verdicts := make([]verdict, 0, len(histories))
	for _, each := range histories {
		judged, known := model(each)
		if !known {
			log.Fatalf("no model %q", each.Model)
		}
		operations := make([]porcupine.Operation, 0, len(each.Operations))
		for client, op := range each.Operations {
			operations = append(operations, porcupine.Operation{
				ClientId: client, Input: op, Call: op.Call, Return: op.Return,
			})
		}
		result := porcupine.CheckOperationsTimeout(judged, operations, limit)
		verdicts = append(verdicts, verdict{each.Name, names[result]})
	}
	if err := json.NewEncoder(os.Stdout).Encode(verdicts); err != nil {
		log.Fatal(err)
	}
}
