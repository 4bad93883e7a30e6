// Command gophercloud makes the calls that other Go programs make with the gophercloud library, in their order and with
// their waits and retries. It prints a line of JSON for each step.
package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"reflect"
	"time"

	"github.com/gophercloud/gophercloud"
	"github.com/gophercloud/gophercloud/openstack"
)

// clients are one user's services, found in the catalogue.
type clients struct {
	identity, network, loadBalancer, keyManager *gophercloud.ServiceClient
	projectID, userID                           string
}

// story is a sequence of steps; it ends with the first that fails.
type story struct{ name string }

type aborted struct{}

func (s story) report(step string, err error) {
	problem := ""
	if err != nil {
		problem = err.Error()
	}
	line, _ := json.Marshal(map[string]string{"name": s.name + ": " + step, "problem": problem})
	fmt.Println(string(line))
}

// do reports a step. It ends the story if the step failed.
func (s story) do(step string, err error) {
	s.report(step, err)
	if err != nil {
		panic(aborted{})
	}
}

// same reports whether two values agree, and goes on.
func (s story) same(step string, got, expected interface{}) {
	if reflect.DeepEqual(got, expected) {
		s.report(step, nil)
		return
	}
	s.report(step, fmt.Errorf("got %#v, expected %#v", got, expected))
}

// gone reports whether the error says that there is no such object.
func (s story) gone(step string, err error) {
	if _, ok := err.(gophercloud.ErrDefault404); ok {
		s.report(step, nil)
		return
	}
	s.report(step, fmt.Errorf("expected 404, got %v", err))
}

func tell(name string, steps func(story)) {
	s := story{name}
	defer func() {
		if problem := recover(); problem != nil {
			if _, ok := problem.(aborted); !ok {
				s.report("runs to its end", fmt.Errorf("%v", problem))
			}
		}
	}()
	steps(s)
	s.report("runs to its end", nil)
}

const (
	pace  = 100 * time.Millisecond
	limit = 60 * time.Second
)

// eventually repeats a probe at a pace until it is true.
func eventually(what string, probe func() (bool, error)) error {
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(pace) {
		done, err := probe()
		if done || err != nil {
			return err
		}
	}
	return fmt.Errorf("not in time: %s", what)
}

// retry repeats a call that is refused for the moment, as the Terraform provider does: 409, 500 and 503.
func retry(call func() error) error {
	return eventually("accepted", func() (bool, error) {
		err := call()
		switch refusal := err.(type) {
		case gophercloud.ErrDefault500, gophercloud.ErrDefault503:
			return false, nil
		case gophercloud.ErrUnexpectedResponseCode:
			if refusal.Actual == http.StatusConflict {
				return false, nil
			}
		}
		return err == nil, err
	})
}

// connect logs in with a prefix of the environment's variables, such as OS_.
func connect(prefix string) (*clients, error) {
	options := gophercloud.AuthOptions{
		IdentityEndpoint: os.Getenv("OS_AUTH_URL"),
		Username:         os.Getenv(prefix + "USERNAME"),
		Password:         os.Getenv(prefix + "PASSWORD"),
		TenantName:       os.Getenv(prefix + "PROJECT_NAME"),
		DomainName:       "Default",
		AllowReauth:      true,
	}
	provider, err := openstack.AuthenticatedClient(options)
	if err != nil {
		return nil, err
	}
	return services(provider)
}

func services(provider *gophercloud.ProviderClient) (*clients, error) {
	region := gophercloud.EndpointOpts{Region: os.Getenv("OS_REGION_NAME")}
	c := &clients{}
	for _, service := range []struct {
		target **gophercloud.ServiceClient
		open   func(*gophercloud.ProviderClient, gophercloud.EndpointOpts) (*gophercloud.ServiceClient, error)
	}{
		{&c.identity, openstack.NewIdentityV3},
		{&c.network, openstack.NewNetworkV2},
		{&c.loadBalancer, openstack.NewLoadBalancerV2},
		{&c.keyManager, openstack.NewKeyManagerV1},
	} {
		client, err := service.open(provider, region)
		if err != nil {
			return nil, err
		}
		*service.target = client
	}
	return c, c.whoAmI()
}

func main() {
	admin, err := connect("OS_")
	if err != nil {
		panic(err)
	}
	demo, err := connect("DEMO_OS_")
	if err != nil {
		panic(err)
	}
	tell("Terraform network", func(s story) { terraformNetwork(s, demo, admin) })
	tell("Terraform load balancer", func(s story) { terraformLoadBalancer(s, demo) })
	tell("Terraform load balancer quota and flavor", func(s story) { terraformQuotaAndFlavor(s, admin) })
	tell("Terraform key manager", func(s story) { terraformKeyManager(s, demo) })
	tell("Terraform identity", func(s story) { terraformIdentity(s, demo, admin) })
	tell("cloud-provider-openstack", func(s story) { cloudProvider(s, demo) })
	tell("octavia-ingress-controller", func(s story) { ingressController(s, demo) })
}

func yes() *bool { value := true; return &value }

func no() *bool { value := false; return &value }

func number(value int) *int { return &value }

func text(value string) *string { return &value }
