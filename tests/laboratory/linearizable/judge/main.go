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
	Token  int64  `json:"token"`
	Value  int64  `json:"value"`
	Call   int64  `json:"call"`
	Return int64  `json:"return"`
}

type history struct {
	Name       string      `json:"name"`
	Model      string      `json:"model"`
	Operations []operation `json:"operations"`
}

type verdict struct {
	Name    string `json:"name"`
	Verdict string `json:"verdict"`
}

// mutex is a lock: at most one holder, and the token of each is higher than all before.
type mutex struct{ holder, last int64 }

func stepMutex(state, input, _ interface{}) (bool, interface{}) {
	now, op := state.(mutex), input.(operation)
	switch op.Kind {
	case "acquire":
		return now.holder == 0 && op.Token > now.last, mutex{op.Token, op.Token}
	case "end":
		return now.holder == op.Token, mutex{0, now.last}
	}
	return false, now
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

var models = map[string]porcupine.Model{
	"mutex":   {Init: func() interface{} { return mutex{} }, Step: stepMutex},
	"counter": {Init: func() interface{} { return counter{} }, Step: stepCounter},
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
		model, known := models[each.Model]
		if !known {
			log.Fatalf("no model %q", each.Model)
		}
		operations := make([]porcupine.Operation, 0, len(each.Operations))
		for client, op := range each.Operations {
			operations = append(operations, porcupine.Operation{
				ClientId: client, Input: op, Call: op.Call, Return: op.Return,
			})
		}
		result := porcupine.CheckOperationsTimeout(model, operations, limit)
		verdicts = append(verdicts, verdict{each.Name, names[result]})
	}
	if err := json.NewEncoder(os.Stdout).Encode(verdicts); err != nil {
		log.Fatal(err)
	}
}
