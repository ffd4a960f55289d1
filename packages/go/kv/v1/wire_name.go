package kvv1

import (
	"fmt"
	"strings"
)

const poolNamePrefix = "POOL_NAME_"

// WireName is what SGLang calls the pool: the name of the enum value without its prefix, in lower case. It is empty for
// POOL_NAME_UNSPECIFIED and for a number that this version does not know.
func (x PoolName) WireName() string {
	if name, known := PoolName_name[int32(x)]; known && x != PoolName_POOL_NAME_UNSPECIFIED {
		return strings.ToLower(strings.TrimPrefix(name, poolNamePrefix))
	}
	return ""
}

// PoolNameFromWire finds a pool by its wire name.
func PoolNameFromWire(wireName string) (PoolName, error) {
	number, known := PoolName_value[poolNamePrefix+strings.ToUpper(wireName)]
	if pool := PoolName(number); known && pool.WireName() == wireName && wireName != "" {
		return pool, nil
	}
	return PoolName_POOL_NAME_UNSPECIFIED, fmt.Errorf("%q is no pool", wireName)
}
