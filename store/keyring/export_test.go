package keyring

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
)

// Encode makes a file of any format with a sum that fits.
func Encode(format int, rest string) []byte {
	b := fmt.Appendf(nil, "\"format\":%d,\"serial\":1,%s}\n", format, rest)
	sum := sha256.Sum256(b)
	return append([]byte(sumPrefix+hex.EncodeToString(sum[:])+sumSuffix), b...)
}
