//go:build ignore

// Renders the templates of the chart, for a test where there is no Helm: `go run render.go FILE... < VALUES.json`. Templates of
// Helm are Go's own; of the functions Helm adds, the chart uses these two.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"text/template"
)

func main() {
	var values map[string]any
	if err := json.NewDecoder(os.Stdin).Decode(&values); err != nil {
		fail(err)
	}
	functions := template.FuncMap{
		"quote": func(v any) string { return fmt.Sprintf("%q", fmt.Sprint(v)) },
		"toJson": func(v any) (string, error) {
			text, err := json.Marshal(v)
			return string(text), err
		},
	}
	release := map[string]any{"Name": "dovetail", "Namespace": "dovetail-system"}
	for _, file := range os.Args[1:] {
		text, err := os.ReadFile(file)
		if err != nil {
			fail(err)
		}
		name := filepath.Base(file)
		// A value that is not there is a mistake.
		parsed, err := template.New(name).Funcs(functions).Option("missingkey=error").Parse(string(text))
		if err != nil {
			fail(err)
		}
		fmt.Println("---")
		if err := parsed.Execute(os.Stdout, map[string]any{"Values": values, "Release": release}); err != nil {
			fail(err)
		}
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
