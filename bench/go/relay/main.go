// Command relay passes bytes between TLS connections, and does nothing else: the least that a proxy with TLS on both sides can cost.
//
//	relay -upstream HOST:PORT -ca FILE -own FILE
//
// It listens on a free port of 127.0.0.1 with a certificate of its own, which it writes to a file, prints "ready ADDRESS", and opens one
// connection to the upstream server for each connection of a client.
package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"flag"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"os"
	"time"
)

var (
	upstream  = flag.String("upstream", "", "address of the server")
	authority = flag.String("ca", "", "file with the server's certificate authority")
	own       = flag.String("own", "", "file for the relay's certificate")
)

// bufferSize is that of io.Copy's buffers: more than a TLS record.
const bufferSize = 64 << 10

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func certificate() tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		NotAfter:     time.Now().Add(24 * time.Hour),
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA:         true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	check(err)
	check(os.WriteFile(*own, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func pass(to, from *tls.Conn) {
	io.CopyBuffer(struct{ io.Writer }{to}, struct{ io.Reader }{from}, make([]byte, bufferSize))
	to.Close()
	from.Close()
}

func main() {
	flag.Parse()
	text, err := os.ReadFile(*authority)
	check(err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(text)
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{certificate()}})
	check(err)
	fmt.Println("ready", listener.Addr())
	for {
		client, err := listener.Accept()
		check(err)
		server, err := tls.Dial("tcp", *upstream, &tls.Config{RootCAs: roots})
		check(err)
		go pass(server, client.(*tls.Conn))
		go pass(client.(*tls.Conn), server)
	}
}
