// Package protos is the root of the Interlock contract in Go. Its subpackages hold the messages and the clients:
// kv/v1 the pools and layouts, bootstrap/v1 the Bootstrap service, preprocess/v1 the Preprocess service.
package protos
