package main

import (
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/gophercloud/gophercloud"
	"github.com/gophercloud/gophercloud/openstack/loadbalancer/v2/apiversions"
	"github.com/gophercloud/gophercloud/openstack/loadbalancer/v2/l7policies"
	"github.com/gophercloud/gophercloud/openstack/loadbalancer/v2/listeners"
	"github.com/gophercloud/gophercloud/openstack/loadbalancer/v2/loadbalancers"
	"github.com/gophercloud/gophercloud/openstack/loadbalancer/v2/monitors"
	"github.com/gophercloud/gophercloud/openstack/loadbalancer/v2/pools"
	"github.com/gophercloud/gophercloud/openstack/loadbalancer/v2/providers"
	"github.com/gophercloud/gophercloud/openstack/networking/v2/subnets"
	"github.com/gophercloud/gophercloud/pagination"
)

const service = "kube_service_kubernetes_default_web"

// cloudProvider follows a Kubernetes service: it is created, its nodes and ports change, and it is deleted.
func cloudProvider(s story, c *clients) {
	client := c.loadBalancer
	probeFeatures(s, client)
	at := makePlace(s, c, "kubernetes", "10.73.0.0/24")
	found, err := balancersNamed(client, service)
	s.do("looks for the service's load balancer", err)
	s.same("there is none", len(found), 0)
	lb := ensureLoadBalancer(s, c, at)
	ensureAgain(s, c, lb)
	updateNodes(s, client, lb, at)
	updatePorts(s, client, lb, at)
	updateMonitors(s, client, lb)
	addDatagramPort(s, client, lb, at)
	shareBetweenServices(s, client, lb)
	ensureDeleted(s, c, lb)
	removePlace(s, c, at)
}

// probeFeatures compares the last version in the list with the first that has a feature.
func probeFeatures(s story, client *gophercloud.ServiceClient) {
	pages, err := apiversions.List(client).AllPages()
	s.do("lists API versions", err)
	versions, err := apiversions.ExtractAPIVersions(pages)
	s.do("reads the API versions", err)
	current := versions[len(versions)-1].ID
	minor, err := strconv.Atoi(strings.TrimPrefix(current, "v2."))
	s.do("understands the version "+current, err)
	for feature, first := range map[string]int{"timeouts": 1, "tags": 5, "flavors": 6, "VIP ACL": 12, "availability zones": 14, "HTTP monitors on UDP": 16} {
		s.same("supports "+feature, minor >= first, true)
	}
	pages, err = providers.List(client, nil).AllPages()
	s.do("lists providers", err)
	all, err := providers.ExtractProviders(pages)
	s.do("reads the providers", err)
	names := map[string]bool{}
	for _, provider := range all {
		names[provider.Name] = true
	}
	s.same("octavia and amphora are there", names["octavia"] && names["amphora"], true)
	s.do("looks for a flavor by name", lists(client, "flavors", "name=small"))
	s.do("looks for an availability zone by name", lists(client, "availabilityzones", "name=nova"))
}

// lists reads a collection that the library's version lacks.
func lists(client *gophercloud.ServiceClient, collection, query string) error {
	var answer object
	_, err := client.Get(client.ServiceURL("lbaas", collection)+"?"+query, &answer, nil)
	return err
}

func balancersNamed(client *gophercloud.ServiceClient, name string) ([]loadbalancers.LoadBalancer, error) {
	pages, err := loadbalancers.List(client, loadbalancers.ListOpts{Name: name}).AllPages()
	if err != nil {
		return nil, err
	}
	return loadbalancers.ExtractLoadBalancers(pages)
}

// wholeTree is what later versions of the library send for a fully populated load balancer.
type wholeTree object

func (tree wholeTree) ToLoadBalancerCreateMap() (map[string]interface{}, error) {
	return object{"loadbalancer": object(tree)}, nil
}

func nodes(subnet string, port int, last ...int) []object {
	members := []object{}
	for _, node := range last {
		members = append(members, object{
			"address": fmt.Sprintf("10.73.0.%d", node), "protocol_port": port, "name": fmt.Sprintf("node_%d_%d", node, port), "subnet_id": subnet,
		})
	}
	return members
}

func ensureLoadBalancer(s story, c *clients, at place) string {
	listener := func(port, nodePort int) object {
		return object{
			"name": fmt.Sprintf("listener_%d_%s", port, service), "protocol": "TCP", "protocol_port": port, "connection_limit": -1,
			"timeout_client_data": 50000, "timeout_member_connect": 5000, "timeout_member_data": 50000, "timeout_tcp_inspect": 0,
			"allowed_cidrs": []string{"0.0.0.0/0"}, "tags": []string{service},
			"default_pool": object{
				"name": fmt.Sprintf("pool_%d_%s", port, service), "protocol": "TCP", "lb_algorithm": "ROUND_ROBIN",
				"session_persistence": object{"type": "SOURCE_IP"}, "members": nodes(at.subnetID, nodePort, 11, 12),
				"healthmonitor": object{"name": "monitor", "type": "TCP", "delay": 5, "timeout": 3, "max_retries": 1, "max_retries_down": 3},
			},
		}
	}
	created, err := loadbalancers.Create(c.loadBalancer, wholeTree{
		"name": service, "description": "Kubernetes external service default/web from cluster kubernetes", "provider": "octavia",
		"vip_subnet_id": at.subnetID, "vip_network_id": at.networkID, "tags": []string{service},
		"listeners": []object{listener(80, 30080), listener(443, 30443)},
	}).Extract()
	s.do("creates the whole load balancer", err)
	s.do("waits for it", waitActive(c.loadBalancer, created.ID))
	return created.ID
}

// ensureAgain is what each later sync does: it finds everything as it should be.
func ensureAgain(s story, c *clients, lb string) {
	found, err := balancersNamed(c.loadBalancer, service)
	s.do("finds the load balancer by name", err)
	s.same("it is the one", len(found) == 1 && found[0].ID == lb, true)
	s.same("its tags", found[0].Tags, []string{service})
	ips, err := floatingIPsOf(c, found[0].VipPortID)
	s.do("looks for a floating IP", err)
	s.same("the VIP is the address of the service", ips == 0 && found[0].VipAddress != "", true)
	_, err = securityGroupsNamed(c, "lb-sg-web")
	s.do("looks for a security group", err)
	subnet, err := subnets.Get(c.network, found[0].VipSubnetID).Extract()
	s.do("reads the VIP's subnet", err)
	s.same("its range", subnet.CIDR, "10.73.0.0/24")
	all := listenersOf(s, c.loadBalancer, lb)
	s.same("both listeners are there", all[80].ID != "" && all[443].ID != "", true)
	for port := range all {
		pool := poolOf(s, c.loadBalancer, lb, all[port].ID)
		addresses, err := addressesOf(c.loadBalancer, pool.ID)
		s.do("reads the members", err)
		s.same("the members are the nodes", addresses, []string{"10.73.0.11", "10.73.0.12"})
		monitor, err := monitors.Get(c.loadBalancer, pool.MonitorID).Extract()
		s.do("reads the monitor", err)
		s.same("the monitor", monitor.Type, "TCP")
	}
}

func listenersOf(s story, client *gophercloud.ServiceClient, lb string) map[int]listeners.Listener {
	pages, err := listeners.List(client, listeners.ListOpts{LoadbalancerID: lb}).AllPages()
	s.do("lists the listeners", err)
	found, err := listeners.ExtractListeners(pages)
	s.do("reads the listeners", err)
	all := map[int]listeners.Listener{}
	for _, listener := range found {
		all[listener.ProtocolPort] = listener
	}
	return all
}

// poolOf finds a listener's pool among all pools of the load balancer.
func poolOf(s story, client *gophercloud.ServiceClient, lb, listener string) pools.Pool {
	var found []pools.Pool
	s.do("finds the listener's pool", pools.List(client, pools.ListOpts{LoadbalancerID: lb}).EachPage(func(page pagination.Page) (bool, error) {
		all, err := pools.ExtractPools(page)
		for _, pool := range all {
			for _, user := range pool.Listeners {
				if user.ID == listener {
					found = append(found, pool)
				}
			}
		}
		return true, err
	}))
	s.same("the listener has one pool", len(found), 1)
	return found[0]
}

func batch(subnet string, port int, last ...int) []pools.BatchUpdateMemberOpts {
	members := []pools.BatchUpdateMemberOpts{}
	for _, node := range last {
		name := fmt.Sprintf("node_%d_%d", node, port)
		members = append(members, pools.BatchUpdateMemberOpts{
			Address: fmt.Sprintf("10.73.0.%d", node), ProtocolPort: port, Name: &name, SubnetID: &subnet,
		})
	}
	return members
}

// updateNodes changes the members of both pools, without a wait between them as two controllers would.
func updateNodes(s story, client *gophercloud.ServiceClient, lb string, at place) {
	all := listenersOf(s, client, lb)
	var both sync.WaitGroup
	problems := make(chan error, 2)
	for port, nodePort := range map[int]int{80: 30080, 443: 30443} {
		pool, nodePort := poolOf(s, client, lb, all[port].ID).ID, nodePort
		both.Add(1)
		go func() {
			defer both.Done()
			problems <- retry(func() error {
				return pools.BatchUpdateMembers(client, pool, batch(at.subnetID, nodePort, 12, 13, 14)).ExtractErr()
			})
		}()
	}
	both.Wait()
	s.do("sets the members of one pool", <-problems)
	s.do("sets the members of the other at the same time", <-problems)
	s.do("waits for both", waitActive(client, lb))
	for port := range all {
		addresses, err := addressesOf(client, poolOf(s, client, lb, all[port].ID).ID)
		s.do("reads the new members", err)
		s.same("the members are the new nodes", addresses, []string{"10.73.0.12", "10.73.0.13", "10.73.0.14"})
	}
}

// updatePorts replaces a port of the service, and changes options of the other.
func updatePorts(s story, client *gophercloud.ServiceClient, lb string, at place) {
	all := listenersOf(s, client, lb)
	cidrs := []string{"10.0.0.0/8", "192.0.2.0/24"}
	_, err := listeners.Update(client, all[80].ID, listeners.UpdateOpts{AllowedCIDRs: &cidrs, TimeoutClientData: number(60000)}).Extract()
	s.do("changes who may connect", err)
	s.do("waits for the change", waitActive(client, lb))
	created, err := listeners.Create(client, listeners.CreateOpts{
		LoadbalancerID: lb, Protocol: listeners.ProtocolTCP, ProtocolPort: 8443, Name: "listener_8443", ConnLimit: number(-1), AllowedCIDRs: cidrs,
	}).Extract()
	s.do("creates the listener of a new port", err)
	s.do("waits for the listener", waitActive(client, lb))
	pool, err := pools.Create(client, pools.CreateOpts{Protocol: pools.ProtocolTCP, LBMethod: pools.LBMethodRoundRobin, ListenerID: created.ID, Name: "pool_8443"}).Extract()
	s.do("creates its pool", err)
	s.do("waits for the pool", waitActive(client, lb))
	s.do("sets its members", pools.BatchUpdateMembers(client, pool.ID, batch(at.subnetID, 31443, 13)).ExtractErr())
	s.do("waits for its members", waitActive(client, lb))

	obsolete := all[443].ID
	old := poolOf(s, client, lb, obsolete)
	if old.MonitorID != "" {
		s.do("deletes the old port's monitor", monitors.Delete(client, old.MonitorID).ExtractErr())
		s.do("waits for the monitor's end", waitActive(client, lb))
	}
	s.do("deletes the old port's pool", pools.Delete(client, old.ID).ExtractErr())
	s.do("waits for the pool's end", waitActive(client, lb))
	s.do("deletes the old port's listener", listeners.Delete(client, obsolete).ExtractErr())
	s.do("waits for the listener's end", waitActive(client, lb))
	left := listenersOf(s, client, lb)
	s.same("the ports are as wished", left[80].ID != "" && left[8443].ID != "" && len(left) == 2, true)
	s.same("who may connect", left[80].AllowedCIDRs, cidrs)
}

func updateMonitors(s story, client *gophercloud.ServiceClient, lb string) {
	pool := poolOf(s, client, lb, listenersOf(s, client, lb)[80].ID)
	_, err := monitors.Update(client, pool.MonitorID, monitors.UpdateOpts{Delay: 10, Timeout: 5, MaxRetries: 2}).Extract()
	s.do("changes the monitor", err)
	s.do("waits for the monitor", waitActive(client, lb))
	s.do("deletes the monitor", monitors.Delete(client, pool.MonitorID).ExtractErr())
	s.do("waits for its end", waitActive(client, lb))
	created, err := monitors.Create(client, monitors.CreateOpts{
		PoolID: pool.ID, Type: monitors.TypeHTTP, Delay: 5, Timeout: 3, MaxRetries: 1, MaxRetriesDown: 3, URLPath: "/healthz", HTTPMethod: "GET", ExpectedCodes: "200",
	}).Extract()
	s.do("creates one that asks kube-proxy", err)
	s.do("waits for the new monitor", waitActive(client, lb))
	s.same("the pool has it", poolOf(s, client, lb, listenersOf(s, client, lb)[80].ID).MonitorID, created.ID)
}

// addDatagramPort gives the service a port of UDP, beside that of TCP with the same number.
func addDatagramPort(s story, client *gophercloud.ServiceClient, lb string, at place) {
	created, err := listeners.Create(client, listeners.CreateOpts{
		LoadbalancerID: lb, Protocol: listeners.ProtocolUDP, ProtocolPort: 80, Name: "listener_udp_80", ConnLimit: number(-1), AllowedCIDRs: []string{"0.0.0.0/0"},
	}).Extract()
	s.do("creates a UDP listener on the port of the TCP one", err)
	s.do("waits for the UDP listener", waitActive(client, lb))
	pool, err := pools.Create(client, pools.CreateOpts{
		Protocol: pools.ProtocolUDP, LBMethod: pools.LBMethodSourceIp, ListenerID: created.ID, Name: "pool_udp_80", Persistence: &pools.SessionPersistence{Type: "SOURCE_IP"},
	}).Extract()
	s.do("creates its UDP pool", err)
	s.do("waits for the UDP pool", waitActive(client, lb))
	monitor, err := monitors.Create(client, monitors.CreateOpts{
		PoolID: pool.ID, Type: "UDP-CONNECT", Delay: 5, Timeout: 3, MaxRetries: 1, MaxRetriesDown: 3,
	}).Extract()
	s.do("creates a UDP-CONNECT monitor", err)
	s.do("waits for the UDP-CONNECT monitor", waitActive(client, lb))
	s.same("the UDP-CONNECT monitor", monitor.Type, "UDP-CONNECT")
	s.do("sets the members of the UDP pool", pools.BatchUpdateMembers(client, pool.ID, batch(at.subnetID, 30080, 12, 13, 14)).ExtractErr())
	s.do("waits for the members of the UDP pool", waitActive(client, lb))
	addresses, err := addressesOf(client, pool.ID)
	s.do("reads the members of the UDP pool", err)
	s.same("the members of the UDP pool are the nodes", addresses, []string{"10.73.0.12", "10.73.0.13", "10.73.0.14"})
}

// shareBetweenServices marks a load balancer that two services use.
func shareBetweenServices(s story, client *gophercloud.ServiceClient, lb string) {
	tags := []string{service, "kube_service_kubernetes_default_other"}
	_, err := loadbalancers.Update(client, lb, loadbalancers.UpdateOpts{Tags: &tags}).Extract()
	s.do("tags it with the second service", err)
	s.do("waits for the tags", waitActive(client, lb))
	pages, err := loadbalancers.List(client, loadbalancers.ListOpts{Tags: tags[1:]}).AllPages()
	s.do("finds it by the second tag", err)
	found, err := loadbalancers.ExtractLoadBalancers(pages)
	s.do("reads what was found", err)
	s.same("the tagged one is found", len(found) == 1 && found[0].ID == lb, true)
}

// ensureDeleted deletes the whole load balancer, and then finds that nothing is left to delete.
func ensureDeleted(s story, c *clients, lb string) {
	found, err := loadbalancers.Get(c.loadBalancer, lb).Extract()
	s.do("reads it before deleting", err)
	_, err = floatingIPsOf(c, found.VipPortID)
	s.do("looks for a floating IP to delete", err)
	s.do("deletes it with all that it has", retry(func() error {
		return loadbalancers.Delete(c.loadBalancer, lb, loadbalancers.DeleteOpts{Cascade: true}).ExtractErr()
	}))
	s.do("waits until it is gone", waitDeleted(c.loadBalancer, lb))
	left, err := balancersNamed(c.loadBalancer, service)
	s.do("looks for it once more", err)
	s.same("nothing is left", len(left), 0)
	s.gone("a second deletion finds none", loadbalancers.Delete(c.loadBalancer, lb, loadbalancers.DeleteOpts{Cascade: true}).ExtractErr())
}

// ingressController routes by host and path: a pool per backend, a policy with two rules each.
func ingressController(s story, c *clients) {
	client := c.loadBalancer
	at := makePlace(s, c, "ingress", "10.73.0.0/24")
	created, err := loadbalancers.Create(client, loadbalancers.CreateOpts{Name: "kube_ingress", VipSubnetID: at.subnetID}).Extract()
	s.do("creates a load balancer", err)
	lb := created.ID
	s.do("waits for it", waitActive(client, lb))
	listener, err := listeners.Create(client, listeners.CreateOpts{LoadbalancerID: lb, Protocol: listeners.ProtocolHTTP, ProtocolPort: 80, Name: "kube_ingress"}).Extract()
	s.do("creates a listener", err)
	s.do("waits for the listener", waitActive(client, lb))
	for _, path := range []string{"/one", "/two"} {
		pool, err := pools.Create(client, pools.CreateOpts{Protocol: pools.ProtocolHTTP, LBMethod: pools.LBMethodRoundRobin, LoadbalancerID: lb, Name: path}).Extract()
		s.do("creates a pool", err)
		s.do("waits for the pool", waitActive(client, lb))
		s.do("sets its members", pools.BatchUpdateMembers(client, pool.ID, batch(at.subnetID, 32000, 11, 12)).ExtractErr())
		s.do("waits for the members", waitActive(client, lb))
		policy, err := l7policies.Create(client, l7policies.CreateOpts{ListenerID: listener.ID, Action: l7policies.ActionRedirectToPool, RedirectPoolID: pool.ID, Name: path}).Extract()
		s.do("creates a policy", err)
		s.do("waits for the policy", waitActive(client, lb))
		for _, rule := range []l7policies.CreateRuleOpts{
			{RuleType: l7policies.TypeHostName, CompareType: l7policies.CompareTypeRegex, Value: `^foo\.example\.org(:80)?$`},
			{RuleType: l7policies.TypePath, CompareType: l7policies.CompareTypeStartWith, Value: path},
		} {
			_, err := l7policies.CreateRule(client, policy.ID, rule).Extract()
			s.do("creates a rule", err)
			s.do("waits for the rule", waitActive(client, lb))
		}
	}
	pages, err := l7policies.List(client, l7policies.ListOpts{ListenerID: listener.ID}).AllPages()
	s.do("lists the policies", err)
	policies, err := l7policies.ExtractL7Policies(pages)
	s.do("reads the policies", err)
	s.same("both policies are there", len(policies), 2)
	for _, policy := range policies {
		pages, err := l7policies.ListRules(client, policy.ID, l7policies.ListRulesOpts{}).AllPages()
		s.do("lists the rules", err)
		rules, err := l7policies.ExtractRules(pages)
		s.do("reads the rules", err)
		s.same("both rules are there", len(rules), 2)
		s.do("deletes the policy", l7policies.Delete(client, policy.ID).ExtractErr())
		s.do("waits for the policy's end", waitActive(client, lb))
	}
	s.do("deletes all", loadbalancers.Delete(client, lb, loadbalancers.DeleteOpts{Cascade: true}).ExtractErr())
	s.do("waits for the end of all", waitDeleted(client, lb))
	removePlace(s, c, at)
}
