package main

import (
	"sort"

	"github.com/gophercloud/gophercloud"
	"github.com/gophercloud/gophercloud/openstack/loadbalancer/v2/l7policies"
	"github.com/gophercloud/gophercloud/openstack/loadbalancer/v2/listeners"
	"github.com/gophercloud/gophercloud/openstack/loadbalancer/v2/loadbalancers"
	"github.com/gophercloud/gophercloud/openstack/loadbalancer/v2/monitors"
	"github.com/gophercloud/gophercloud/openstack/loadbalancer/v2/pools"
	"github.com/gophercloud/gophercloud/openstack/networking/v2/ports"
)

// terraformLoadBalancer creates, reads, changes and deletes each of the provider's load balancer resources.
func terraformLoadBalancer(s story, c *clients) {
	client := c.loadBalancer
	at := makePlace(s, c, "terraform-lb", "10.72.0.0/24")
	lb := terraformVip(s, c, at)
	listener := terraformListener(s, client, lb)
	pool := terraformPool(s, client, lb, listener)
	terraformMember(s, client, lb, pool, at.subnetID)
	terraformMembers(s, client, lb, pool, at.subnetID)
	terraformMonitor(s, client, lb, pool)
	terraformPolicy(s, client, lb, listener)
	terraformStatuses(s, client, lb, listener, pool)

	s.do("deletes the pool", retry(func() error { return pools.Delete(client, pool).ExtractErr() }))
	s.do("waits for the pool's end", waitChildDeleted(client, lb, poolStatus(client, pool)))
	s.do("deletes the listener", retry(func() error { return listeners.Delete(client, listener).ExtractErr() }))
	s.do("waits for the listener's end", waitChildDeleted(client, lb, listenerStatus(client, listener)))
	s.do("deletes the load balancer", retry(func() error {
		return loadbalancers.Delete(client, lb, loadbalancers.DeleteOpts{}).ExtractErr()
	}))
	s.do("waits for its end", waitDeleted(client, lb))
	removePlace(s, c, at)
}

func terraformVip(s story, c *clients, at place) string {
	lb, err := loadbalancers.Create(c.loadBalancer, loadbalancers.CreateOpts{
		Name: "terraform", VipSubnetID: at.subnetID, AdminStateUp: yes(), Tags: []string{"one", "two"},
	}).Extract()
	s.do("creates a load balancer", err)
	s.do("waits for it", waitActive(c.loadBalancer, lb.ID))
	port, err := ports.Get(c.network, lb.VipPortID).Extract()
	s.do("reads the security groups of the VIP's port", err)
	s.same("the port has the VIP", port.FixedIPs[0].IPAddress, lb.VipAddress)
	name, tags := "renamed", []string{"three"}
	s.do("updates the load balancer", retry(func() error {
		_, err := loadbalancers.Update(c.loadBalancer, lb.ID, loadbalancers.UpdateOpts{Name: &name, Tags: &tags}).Extract()
		return err
	}))
	s.do("waits for the update", waitActive(c.loadBalancer, lb.ID))
	read, err := loadbalancers.Get(c.loadBalancer, lb.ID).Extract()
	s.do("reads it", err)
	s.same("nothing is left to plan", []interface{}{
		read.Name, read.Tags, read.VipSubnetID, read.VipNetworkID, read.ProjectID, read.Provider, read.AdminStateUp,
	}, []interface{}{"renamed", tags, at.subnetID, at.networkID, c.projectID, lb.Provider, true})
	s.same("its times can be read", !read.CreatedAt.IsZero() && !read.UpdatedAt.Before(read.CreatedAt), true)
	return lb.ID
}

func terraformListener(s story, client *gophercloud.ServiceClient, lb string) string {
	options := listeners.CreateOpts{
		LoadbalancerID: lb, Protocol: listeners.ProtocolHTTP, ProtocolPort: 80, Name: "web", AdminStateUp: yes(),
		ConnLimit: number(1000), TimeoutClientData: number(60000), TimeoutMemberConnect: number(4000),
		TimeoutMemberData: number(70000), TimeoutTCPInspect: number(0),
		InsertHeaders: map[string]string{"X-Forwarded-For": "true"}, AllowedCIDRs: []string{"10.0.0.0/8"},
	}
	var listener *listeners.Listener
	s.do("creates a listener", retry(func() (err error) {
		listener, err = listeners.Create(client, options).Extract()
		return err
	}))
	s.do("waits for the listener", waitChild(client, lb, "listener", listenerStatus(client, listener.ID)))
	headers := map[string]string{"X-Forwarded-Port": "true"}
	s.do("updates the listener", retry(func() error {
		_, err := listeners.Update(client, listener.ID, listeners.UpdateOpts{
			ConnLimit: number(-1), InsertHeaders: &headers, AllowedCIDRs: &[]string{},
		}).Extract()
		return err
	}))
	s.do("waits for the listener's update", waitChild(client, lb, "listener", listenerStatus(client, listener.ID)))
	read, err := listeners.Get(client, listener.ID).Extract()
	s.do("reads the listener", err)
	s.same("the listener is as planned", []interface{}{
		read.Name, read.Protocol, read.ProtocolPort, read.ConnLimit, read.TimeoutClientData, read.TimeoutMemberConnect,
		read.TimeoutMemberData, read.TimeoutTCPInspect, read.InsertHeaders, len(read.AllowedCIDRs), read.Loadbalancers,
	}, []interface{}{
		"web", "HTTP", 80, -1, 60000, 4000, 70000, 0, headers, 0, []listeners.LoadBalancerID{{ID: lb}},
	})
	return listener.ID
}

func terraformPool(s story, client *gophercloud.ServiceClient, lb, listener string) string {
	var pool *pools.Pool
	s.do("creates a pool", retry(func() (err error) {
		pool, err = pools.Create(client, pools.CreateOpts{
			ListenerID: listener, Protocol: pools.ProtocolHTTP, LBMethod: pools.LBMethodRoundRobin, Name: "web",
			Persistence: &pools.SessionPersistence{Type: "APP_COOKIE", CookieName: "session"}, AdminStateUp: yes(),
		}).Extract()
		return err
	}))
	parent, err := parentOf(client, pool)
	s.do("finds the pool's load balancer", err)
	s.same("the pool's load balancer", parent, lb)
	s.do("waits for the pool", waitChild(client, lb, "pool", poolStatus(client, pool.ID)))
	s.do("updates the pool", retry(func() error {
		_, err := pools.Update(client, pool.ID, pools.UpdateOpts{LBMethod: pools.LBMethodLeastConnections, Description: text("by Terraform")}).Extract()
		return err
	}))
	s.do("waits for the pool's update", waitChild(client, lb, "pool", poolStatus(client, pool.ID)))
	read, err := pools.Get(client, pool.ID).Extract()
	s.do("reads the pool", err)
	s.same("the pool is as planned", []interface{}{read.LBMethod, read.Protocol, read.Description, read.Persistence},
		[]interface{}{"LEAST_CONNECTIONS", "HTTP", "by Terraform", pools.SessionPersistence{Type: "APP_COOKIE", CookieName: "session"}})
	return pool.ID
}

func terraformMember(s story, client *gophercloud.ServiceClient, lb, pool, subnet string) {
	var member *pools.Member
	s.do("creates a member", retry(func() (err error) {
		member, err = pools.CreateMember(client, pool, pools.CreateMemberOpts{
			Address: "10.72.0.200", ProtocolPort: 8080, Weight: number(0), SubnetID: subnet, AdminStateUp: yes(), Backup: yes(),
			MonitorAddress: "10.72.0.201", MonitorPort: number(8081),
		}).Extract()
		return err
	}))
	s.do("waits for the member", waitChild(client, lb, "member", memberStatus(client, pool, member.ID)))
	s.do("updates the member", retry(func() error {
		_, err := pools.UpdateMember(client, pool, member.ID, pools.UpdateMemberOpts{Weight: number(5), Name: text("")}).Extract()
		return err
	}))
	s.do("waits for the member's update", waitChild(client, lb, "member", memberStatus(client, pool, member.ID)))
	read, err := pools.GetMember(client, pool, member.ID).Extract()
	s.do("reads the member", err)
	s.same("the member is as planned", []interface{}{
		read.Address, read.ProtocolPort, read.Weight, read.SubnetID, read.Backup, read.MonitorAddress, read.MonitorPort,
	}, []interface{}{"10.72.0.200", 8080, 5, subnet, true, "10.72.0.201", 8081})
	s.do("deletes the member", retry(func() error { return pools.DeleteMember(client, pool, member.ID).ExtractErr() }))
	s.do("waits for the member's end", waitChildDeleted(client, lb, memberStatus(client, pool, member.ID)))
}

// addressesOf lists a pool's members.
func addressesOf(client *gophercloud.ServiceClient, pool string) ([]string, error) {
	pages, err := pools.ListMembers(client, pool, pools.ListMembersOpts{}).AllPages()
	if err != nil {
		return nil, err
	}
	members, err := pools.ExtractMembers(pages)
	addresses := []string{}
	for _, member := range members {
		addresses = append(addresses, member.Address)
	}
	sort.Strings(addresses)
	return addresses, err
}

func terraformMembers(s story, client *gophercloud.ServiceClient, lb, pool, subnet string) {
	for _, addresses := range [][]string{{"10.72.0.210", "10.72.0.211"}, {"10.72.0.211", "10.72.0.212", "10.72.0.213"}, {}} {
		batch := []pools.BatchUpdateMemberOpts{}
		for _, address := range addresses {
			batch = append(batch, pools.BatchUpdateMemberOpts{
				Address: address, ProtocolPort: 80, SubnetID: &subnet, Weight: number(1), Name: text(""), AdminStateUp: yes(),
			})
		}
		s.do("sets all members", retry(func() error { return pools.BatchUpdateMembers(client, pool, batch).ExtractErr() }))
		s.do("waits for the members", waitChild(client, lb, "pool", poolStatus(client, pool)))
		found, err := addressesOf(client, pool)
		s.do("reads the members", err)
		s.same("the members are as planned", found, addresses)
	}
}

func terraformMonitor(s story, client *gophercloud.ServiceClient, lb, pool string) {
	var monitor *monitors.Monitor
	s.do("creates a monitor", retry(func() (err error) {
		monitor, err = monitors.Create(client, monitors.CreateOpts{
			PoolID: pool, Type: monitors.TypeHTTP, Delay: 20, Timeout: 10, MaxRetries: 5, MaxRetriesDown: 4,
			URLPath: "/health", HTTPMethod: "GET", ExpectedCodes: "200-204", Name: "web", AdminStateUp: yes(),
		}).Extract()
		return err
	}))
	s.do("waits for the monitor", waitChild(client, lb, "monitor", monitorStatus(client, monitor.ID)))
	s.do("updates the monitor", retry(func() error {
		_, err := monitors.Update(client, monitor.ID, monitors.UpdateOpts{Delay: 30, Timeout: 15, URLPath: "/alive"}).Extract()
		return err
	}))
	s.do("waits for the monitor's update", waitChild(client, lb, "monitor", monitorStatus(client, monitor.ID)))
	read, err := monitors.Get(client, monitor.ID).Extract()
	s.do("reads the monitor", err)
	s.same("the monitor is as planned", []interface{}{
		read.Type, read.Delay, read.Timeout, read.MaxRetries, read.MaxRetriesDown, read.URLPath, read.HTTPMethod, read.ExpectedCodes, read.Pools,
	}, []interface{}{"HTTP", 30, 15, 5, 4, "/alive", "GET", "200-204", []monitors.PoolID{{ID: pool}}})
	s.do("deletes the monitor", retry(func() error { return monitors.Delete(client, monitor.ID).ExtractErr() }))
	s.do("waits for the monitor's end", waitChildDeleted(client, lb, monitorStatus(client, monitor.ID)))
}

func terraformPolicy(s story, client *gophercloud.ServiceClient, lb, listener string) {
	var policy *l7policies.L7Policy
	s.do("creates an L7 policy", retry(func() (err error) {
		policy, err = l7policies.Create(client, l7policies.CreateOpts{
			ListenerID: listener, Action: l7policies.ActionRedirectToURL, RedirectURL: "https://www.example.org", Name: "away", Position: 1, AdminStateUp: yes(),
		}).Extract()
		return err
	}))
	s.do("waits for the L7 policy", waitChild(client, lb, "policy", policyStatus(client, policy.ID)))
	var rule *l7policies.Rule
	s.do("creates an L7 rule", retry(func() (err error) {
		rule, err = l7policies.CreateRule(client, policy.ID, l7policies.CreateRuleOpts{
			RuleType: l7policies.TypePath, CompareType: l7policies.CompareTypeEqual, Value: "/old", AdminStateUp: yes(),
		}).Extract()
		return err
	}))
	s.do("waits for the L7 rule", waitChild(client, lb, "rule", ruleStatus(client, policy.ID, rule.ID)))
	s.do("updates the L7 rule", retry(func() error {
		_, err := l7policies.UpdateRule(client, policy.ID, rule.ID, l7policies.UpdateRuleOpts{
			RuleType: l7policies.TypeHeader, CompareType: l7policies.CompareTypeContains, Key: text("X-Kind"), Value: "old", Invert: yes(),
		}).Extract()
		return err
	}))
	s.do("waits for the L7 rule's update", waitChild(client, lb, "rule", ruleStatus(client, policy.ID, rule.ID)))
	s.do("updates the L7 policy", retry(func() error {
		_, err := l7policies.Update(client, policy.ID, l7policies.UpdateOpts{Action: l7policies.ActionReject, RedirectURL: text("")}).Extract()
		return err
	}))
	s.do("waits for the L7 policy's update", waitChild(client, lb, "policy", policyStatus(client, policy.ID)))
	read, err := l7policies.Get(client, policy.ID).Extract()
	s.do("reads the L7 policy", err)
	s.same("the L7 policy is as planned", []interface{}{read.Action, read.RedirectURL, read.ListenerID, read.Position, len(read.Rules)},
		[]interface{}{"REJECT", "", listener, int32(1), 1})
	found, err := l7policies.GetRule(client, policy.ID, rule.ID).Extract()
	s.do("reads the L7 rule", err)
	s.same("the L7 rule is as planned", []interface{}{found.RuleType, found.CompareType, found.Key, found.Value, found.Invert},
		[]interface{}{"HEADER", "CONTAINS", "X-Kind", "old", true})
	s.do("deletes the L7 rule", retry(func() error { return l7policies.DeleteRule(client, policy.ID, rule.ID).ExtractErr() }))
	s.do("waits for the L7 rule's end", waitChildDeleted(client, lb, ruleStatus(client, policy.ID, rule.ID)))
	s.do("deletes the L7 policy", retry(func() error { return l7policies.Delete(client, policy.ID).ExtractErr() }))
	s.do("waits for the L7 policy's end", waitChildDeleted(client, lb, policyStatus(client, policy.ID)))
}

// terraformStatuses reads the status tree, from which older versions of the provider take every status.
func terraformStatuses(s story, client *gophercloud.ServiceClient, lb, listener, pool string) {
	tree, err := loadbalancers.GetStatuses(client, lb).Extract()
	s.do("reads the status tree", err)
	root := tree.Loadbalancer
	s.same("the status tree has the load balancer", []string{root.ID, root.ProvisioningStatus}, []string{lb, "ACTIVE"})
	s.same("and its listener", len(root.Listeners) == 1 && root.Listeners[0].ID == listener && root.Listeners[0].ProvisioningStatus == "ACTIVE", true)
	s.same("and its pool", len(root.Listeners[0].Pools) == 1 && root.Listeners[0].Pools[0].ID == pool, true)
	_, err = loadbalancers.GetStats(client, lb).Extract()
	s.do("reads the statistics", err)
}
