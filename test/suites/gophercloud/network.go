package main

import (
	"strings"

	"github.com/gophercloud/gophercloud"
	"github.com/gophercloud/gophercloud/openstack/networking/v2/extensions/attributestags"
	"github.com/gophercloud/gophercloud/openstack/networking/v2/extensions/layer3/floatingips"
	"github.com/gophercloud/gophercloud/openstack/networking/v2/extensions/quotas"
	"github.com/gophercloud/gophercloud/openstack/networking/v2/extensions/security/groups"
	"github.com/gophercloud/gophercloud/openstack/networking/v2/networks"
	"github.com/gophercloud/gophercloud/openstack/networking/v2/ports"
	"github.com/gophercloud/gophercloud/openstack/networking/v2/subnets"
)

// place is a network with a subnet of the caller's own.
type place struct{ networkID, subnetID string }

func makePlace(s story, c *clients, name, cidr string) place {
	network, err := networks.Create(c.network, networks.CreateOpts{Name: name, AdminStateUp: yes()}).Extract()
	s.do("creates a network", err)
	s.do("waits for the network", eventually("ACTIVE", func() (bool, error) {
		found, err := networks.Get(c.network, network.ID).Extract()
		return err == nil && found.Status == "ACTIVE", err
	}))
	// The addresses of members and the like, which the stories choose, are outside the pool: no VIP takes them.
	prefix := strings.TrimSuffix(cidr, "0/24")
	subnet, err := subnets.Create(c.network, subnets.CreateOpts{
		NetworkID: network.ID, CIDR: cidr, IPVersion: gophercloud.IPv4, Name: name, EnableDHCP: yes(),
		AllocationPools: []subnets.AllocationPool{{Start: prefix + "100", End: prefix + "199"}},
	}).Extract()
	s.do("creates a subnet", err)
	return place{network.ID, subnet.ID}
}

func removePlace(s story, c *clients, at place) {
	s.do("deletes the subnet", retry(func() error { return subnets.Delete(c.network, at.subnetID).ExtractErr() }))
	s.do("deletes the network", retry(func() error { return networks.Delete(c.network, at.networkID).ExtractErr() }))
	_, err := networks.Get(c.network, at.networkID).Extract()
	s.gone("the network is gone", err)
}

func terraformNetwork(s story, c, admin *clients) {
	at := makePlace(s, c, "terraform", "10.71.0.0/24")
	_, err := networks.Update(c.network, at.networkID, networks.UpdateOpts{Description: text("by Terraform")}).Extract()
	s.do("describes the network", err)
	tags, err := attributestags.ReplaceAll(c.network, "networks", at.networkID, attributestags.ReplaceAllOpts{Tags: []string{"a", "b"}}).Extract()
	s.do("tags the network", err)
	s.same("the tags are there", len(tags), 2)
	pages, err := networks.List(c.network, networks.ListOpts{Tags: "a,b", Name: "terraform"}).AllPages()
	s.do("lists by tags and name", err)
	found, err := networks.ExtractNetworks(pages)
	s.do("reads the list", err)
	s.same("one network is found", len(found), 1)

	subnet, err := subnets.Update(c.network, at.subnetID, subnets.UpdateOpts{
		DNSNameservers: &[]string{"192.0.2.53"},
		HostRoutes:     &[]subnets.HostRoute{{DestinationCIDR: "10.200.0.0/16", NextHop: "10.71.0.9"}},
	}).Extract()
	s.do("changes the subnet", err)
	s.same("its name servers", subnet.DNSNameservers, []string{"192.0.2.53"})
	s.same("its gateway", subnet.GatewayIP, "10.71.0.1")

	terraformPort(s, c, at)
	terraformNetworkQuota(s, c, admin)
	removePlace(s, c, at)
}

func terraformPort(s story, c *clients, at place) {
	port, err := ports.Create(c.network, ports.CreateOpts{
		NetworkID: at.networkID, Name: "vip", AdminStateUp: yes(), SecurityGroups: &[]string{},
		FixedIPs: []ports.IP{{SubnetID: at.subnetID, IPAddress: "10.71.0.50"}},
	}).Extract()
	s.do("creates a port", err)
	s.same("its address", port.FixedIPs, []ports.IP{{SubnetID: at.subnetID, IPAddress: "10.71.0.50"}})
	s.same("its security groups", len(port.SecurityGroups), 0)
	_, err = ports.Update(c.network, port.ID, ports.UpdateOpts{Name: text("renamed"), AdminStateUp: no()}).Extract()
	s.do("changes the port", err)
	pages, err := ports.List(c.network, ports.ListOpts{FixedIPs: []ports.FixedIPOpts{{IPAddress: "10.71.0.50"}, {SubnetID: at.subnetID}}}).AllPages()
	s.do("lists ports by address", err)
	found, err := ports.ExtractPorts(pages)
	s.do("reads the list of ports", err)
	s.same("the port is found", len(found) == 1 && found[0].Name == "renamed" && !found[0].AdminStateUp, true)
	s.do("deletes the port", ports.Delete(c.network, port.ID).ExtractErr())
	_, err = ports.Get(c.network, port.ID).Extract()
	s.gone("the port is gone", err)
}

func terraformNetworkQuota(s story, c, admin *clients) {
	before, err := quotas.Get(admin.network, c.projectID).Extract()
	s.do("reads the quota", err)
	after, err := quotas.Update(admin.network, c.projectID, quotas.UpdateOpts{Network: number(before.Network + 1)}).Extract()
	s.do("raises the quota", err)
	s.same("the new quota", after.Network, before.Network+1)
	_, err = quotas.Update(admin.network, c.projectID, quotas.UpdateOpts{Network: &before.Network}).Extract()
	s.do("restores the quota", err)
}

// floatingIPsOf lists a port's floating IPs, as cloud-provider-openstack does before anything else.
func floatingIPsOf(c *clients, portID string) (int, error) {
	pages, err := floatingips.List(c.network, floatingips.ListOpts{PortID: portID}).AllPages()
	if err != nil {
		return 0, err
	}
	found, err := floatingips.ExtractFloatingIPs(pages)
	return len(found), err
}

func securityGroupsNamed(c *clients, name string) (int, error) {
	pages, err := groups.List(c.network, groups.ListOpts{Name: name}).AllPages()
	if err != nil {
		return 0, err
	}
	found, err := groups.ExtractGroups(pages)
	return len(found), err
}
