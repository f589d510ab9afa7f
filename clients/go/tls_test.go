package dueq

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// certificate writes a key and a certificate for 127.0.0.1, and returns what trusts it.
func certificate(t *testing.T, folder string) *x509.CertPool {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{{127, 0, 0, 1}},
		IsCA: true, BasicConstraintsValid: true,
	}
	signed, err := x509.CreateCertificate(rand.Reader, &template, &template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	trusted := x509.NewCertPool()
	for name, block := range map[string]*pem.Block{
		"cert": {Type: "CERTIFICATE", Bytes: signed}, "key": {Type: "PRIVATE KEY", Bytes: secret},
	} {
		text := pem.EncodeToMemory(block)
		trusted.AppendCertsFromPEM(text)
		if err := os.WriteFile(filepath.Join(folder, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return trusted
}

func TestTLSVerifiesTheCertificateOfTheServer(t *testing.T) {
	folder, port := t.TempDir(), freePort(t)
	trusted := certificate(t, folder)
	server := startServer(t)
	if err := server.client.Do(ctx, "CONFIG", "SET", "tls-cert-file", filepath.Join(folder, "cert"), "tls-key-file",
		filepath.Join(folder, "key"), "tls-auth-clients", "no", "tls-port", port).Err(); err != nil {
		t.Skip("the server is built without TLS: ", err)
	}
	url := fmt.Sprintf("rediss://127.0.0.1:%d/", port)
	client, err := Connect(url, TLS(&tls.Config{RootCAs: trusted, MinVersion: tls.VersionTLS12}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	queue := client.Queue("q")
	stop := startWorker(t, client.Worker().Queue(queue, nothing))
	mustPush(t, queue, "", Delay(50*time.Millisecond))
	server.acked("q", 1)
	stop()

	defer func(before time.Duration) { patienceLimit = before }(patienceLimit)
	patienceLimit = 100 * time.Millisecond
	for _, url := range []string{url, url + "?skip_verify=true"} {
		_, err = connected(t, url).Queue("q").Push(ctx, nil)
		var failure *Error
		if !errors.As(err, &failure) || failure.Applied != AppliedNo || !strings.Contains(err.Error(), "certificate") {
			t.Errorf("%s: %v", url, err)
		}
	}
}
