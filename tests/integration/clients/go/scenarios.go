package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"runtime/debug"
	"sort"
	"strings"
	"time"
)

type scenario func(context.Context, *client)

// outcome is one line of standard output.
type outcome struct {
	Scenario string  `json:"scenario"`
	Error    *string `json:"error"`
	Seconds  float64 `json:"seconds"`
}

// runAll goes through the scenarios by name and prints what each came to.
func runAll(bootstrap string, scenarios map[string]scenario) {
	names := make([]string, 0, len(scenarios))
	for name := range scenarios {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		start := time.Now()
		line := outcome{Scenario: name, Error: run(bootstrap, scenarios[name])}
		line.Seconds = time.Since(start).Seconds()
		if err := json.NewEncoder(os.Stdout).Encode(line); err != nil {
			panic(err)
		}
	}
}

func run(bootstrap string, body scenario) (failure *string) {
	ctx, cancel := context.WithTimeout(context.Background(), 40*time.Second)
	defer cancel()
	c := &client{bootstrap: bootstrap}
	defer c.close()
	defer func() {
		if reason := recover(); reason != nil {
			text := fmt.Sprintf("%v at %s", reason, place(string(debug.Stack())))
			failure = &text
		}
	}()
	body(ctx, c)
	return nil
}

// place is the line of a scenario in a stack trace.
func place(stack string) string {
	for _, line := range strings.Split(stack, "\n") {
		line = strings.TrimSpace(line)
		if strings.Contains(line, ".go:") && !strings.Contains(line, "/scenarios.go") && !strings.Contains(line, "/runtime/") {
			return line[strings.LastIndex(line, "/")+1:]
		}
	}
	return "?"
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func equal(expected, found any, what string) {
	if !reflect.DeepEqual(expected, found) {
		panic(fmt.Sprintf("%s: %.300v and not %.300v", what, found, expected))
	}
}

func fails(err error, expected error, what string) {
	if err == nil || !strings.Contains(err.Error(), strings.SplitN(expected.Error(), ":", 2)[0]) {
		panic(fmt.Sprintf("%s: %v and not %v", what, err, expected))
	}
}

// until repeats a step until it says that it is done; the context ends it.
func until(ctx context.Context, what string, done func() bool) {
	for !done() {
		if ctx.Err() != nil {
			panic(what + " did not come in time")
		}
	}
}
