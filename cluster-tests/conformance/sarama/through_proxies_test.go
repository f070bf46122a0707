//go:build functional

package sarama

import (
	"net"
	"os"
	"strconv"
)

// throughProxies makes a client dial the proxy of each broker, whatever address the broker announces: a test then breaks
// connections though the brokers know nothing of proxies. WEIR_PROXY_DISTANCE says by how much the ports differ.
type throughProxies struct{}

func (throughProxies) Dial(network, address string) (net.Conn, error) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		return nil, err
	}
	distance, err := strconv.Atoi(os.Getenv("WEIR_PROXY_DISTANCE"))
	if err != nil {
		return nil, err
	}
	return net.Dial(network, net.JoinHostPort(host, strconv.Itoa(port+distance)))
}
