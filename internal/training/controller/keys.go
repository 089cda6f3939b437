package controller

import (
	"crypto/ecdh"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/binary"
	"encoding/pem"
	"fmt"
)

// sshKeys generates an ECDSA key pair on P-521: the private key in PEM, the public key as a line of authorized_keys (spec: 50 §4.6.3).
func sshKeys() (private, public []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P521(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("making SSH keys: %w", err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, nil, fmt.Errorf("making SSH keys: %w", err)
	}
	point, err := key.PublicKey.Bytes()
	if err != nil {
		return nil, nil, fmt.Errorf("making SSH keys: %w", err)
	}
	const kind, curve = "ecdsa-sha2-nistp521", "nistp521"
	var wire []byte // RFC 5656, section 3.1
	for _, part := range [][]byte{[]byte(kind), []byte(curve), point} {
		wire = binary.BigEndian.AppendUint32(wire, uint32(len(part)))
		wire = append(wire, part...)
	}
	line := kind + " " + base64.StdEncoding.EncodeToString(wire) + "\n"
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), []byte(line), nil
}

// curveKeys generates an X25519 key pair in Z85 (spec: 50 §4.6.4).
func curveKeys() (public, secret string, err error) {
	key, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		return "", "", fmt.Errorf("making keys for Flux: %w", err)
	}
	return z85(key.PublicKey().Bytes()), z85(key.Bytes()), nil
}

const z85Digits = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"

// z85 encodes data in ZeroMQ's base 85. The length of data is a multiple of 4.
func z85(data []byte) string {
	out := make([]byte, 0, len(data)/4*5)
	for ; len(data) >= 4; data = data[4:] {
		n := binary.BigEndian.Uint32(data)
		var digits [5]byte
		for i := 4; i >= 0; i-- {
			digits[i] = z85Digits[n%85]
			n /= 85
		}
		out = append(out, digits[:]...)
	}
	return string(out)
}
