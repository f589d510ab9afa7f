package dueq

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func readFile(t *testing.T, path ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The program of the README runs in a module of its own, as a reader would make it.
func TestTheQuickStartHandlesItsMessage(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	programs := regexp.MustCompile("(?ms)^```go\n(package main.*?)^```").FindAllStringSubmatch(readFile(t, "README.md"), -1)
	equal(t, len(programs), 1)
	folder := t.TempDir()
	here, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	module := strings.Replace(readFile(t, "go.mod"), "module github.com/dueq/dueq/clients/go", "module start", 1) +
		"\nrequire github.com/dueq/dueq/clients/go v0.0.0\nreplace github.com/dueq/dueq/clients/go => " + here + "\n"
	for name, text := range map[string]string{
		"go.mod": module, "go.sum": readFile(t, "go.sum"),
		"main.go": strings.ReplaceAll(programs[0][1], "redis://127.0.0.1:6379/", server.url()),
	} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run := exec.Command("go", "run", ".")
	run.Dir = folder
	output, err := run.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	equal(t, string(output), "order:42: rate it, attempt 1\n")
}

func TestTheVersionIsThatOfTheLibrary(t *testing.T) {
	manifest := readFile(t, "..", "..", "Cargo.toml")
	equal(t, regexp.MustCompile(`(?m)^version = "(.*)"`).FindStringSubmatch(manifest)[1], Version)
}

func TestTheEmbeddedScriptsAreThoseOfLuaDist(t *testing.T) {
	if len(scripts()) < 20 {
		t.Fatal(len(scripts()), "scripts")
	}
	for verb, script := range scripts() {
		if script.text != readFile(t, "..", "..", "lua", "dist", verb+".lua") {
			t.Errorf("scripts/%s.lua is not that of lua/dist: make lua", verb)
		}
		output, err := exec.Command("sha1sum", "scripts/"+verb+".lua").Output()
		if err != nil || !strings.HasPrefix(string(output), script.sha) {
			t.Error(verb, script.sha, string(output), err)
		}
	}
}
