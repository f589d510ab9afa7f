package dueq

import (
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"strings"
	"sync"
)

//go:generate ../../scripts/lua-dist
//go:embed scripts/*.lua
var scriptFiles embed.FS

// script is one verb of the protocol, as the server calls it.
type script struct{ sha, text string }

// scripts by verb, with the SHA-1 by which EVALSHA names them.
var scripts = sync.OnceValue(func() map[string]script {
	files, err := scriptFiles.ReadDir("scripts")
	if err != nil {
		panic(err)
	}
	found := make(map[string]script, len(files))
	for _, file := range files {
		text, err := scriptFiles.ReadFile("scripts/" + file.Name())
		if err != nil {
			panic(err)
		}
		sum := sha1.Sum(text)
		found[strings.TrimSuffix(file.Name(), ".lua")] = script{hex.EncodeToString(sum[:]), string(text)}
	}
	return found
})
