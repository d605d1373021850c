package authority

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"time"
)

// CertificateFile is where the certificate of the services is kept, with its key.
const CertificateFile = "authority-certificate"

// Files keeps it. Package store/datadir has one.
type Files interface {
	ReadChecked(name string) ([]byte, error)
	WriteChecked(name string, b []byte) error
}

// How long a certificate is good, and how long before its end the next is made.
// Devices know it by its hash, which every visit brings.
const (
	certificateLife = 10 * 365 * 24 * time.Hour
	renewBefore     = 30 * 24 * time.Hour
)

// Certificate gives the certificate that the services show, and its SHA-256 over
// the DER form, for devices to pin. The first call makes it.
func Certificate(files Files, now time.Time) (tls.Certificate, []byte, error) {
	kept, err := files.ReadChecked(CertificateFile)
	if err == nil {
		c, err := tls.X509KeyPair(kept, kept)
		if err != nil {
			return c, nil, fmt.Errorf("the certificate of the authority services: %w", err)
		}
		if c.Leaf.NotAfter.After(now.Add(renewBefore)) {
			return c, pin(c), nil
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return tls.Certificate{}, nil, fmt.Errorf("read the certificate of the authority services: %w", err)
	}
	made, err := makeCertificate(now)
	if err != nil {
		return tls.Certificate{}, nil, fmt.Errorf("make the certificate of the authority services: %w", err)
	}
	if err := files.WriteChecked(CertificateFile, made); err != nil {
		return tls.Certificate{}, nil, fmt.Errorf("keep the certificate of the authority services: %w", err)
	}
	c, err := tls.X509KeyPair(made, made)
	return c, pin(c), err
}

func pin(c tls.Certificate) []byte {
	sum := sha256.Sum256(c.Certificate[0])
	return sum[:]
}

func makeCertificate(now time.Time) ([]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	t := &x509.Certificate{SerialNumber: serial, Subject: pkix.Name{CommonName: "chordwheel authority services"}, NotBefore: now.Add(-time.Hour),
		NotAfter: now.Add(certificateLife), KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, DNSNames: []string{"localhost"}}
	der, err := x509.CreateCertificate(rand.Reader, t, t, key.Public(), key)
	if err != nil {
		return nil, err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})...), nil
}
