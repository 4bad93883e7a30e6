package main

import (
	"fmt"

	"github.com/gophercloud/gophercloud"
	"github.com/gophercloud/gophercloud/openstack/loadbalancer/v2/l7policies"
	"github.com/gophercloud/gophercloud/openstack/loadbalancer/v2/listeners"
	"github.com/gophercloud/gophercloud/openstack/loadbalancer/v2/loadbalancers"
	"github.com/gophercloud/gophercloud/openstack/loadbalancer/v2/monitors"
	"github.com/gophercloud/gophercloud/openstack/loadbalancer/v2/pools"
)

// waitActive waits for a load balancer. ERROR is a failure, and so is any status that is not one of a change.
func waitActive(client *gophercloud.ServiceClient, id string) error {
	return eventually("load balancer ACTIVE", func() (bool, error) {
		found, err := loadbalancers.Get(client, id).Extract()
		if err != nil {
			return false, err
		}
		switch found.ProvisioningStatus {
		case "ACTIVE":
			return true, nil
		case "PENDING_CREATE", "PENDING_UPDATE":
			return false, nil
		}
		return false, fmt.Errorf("load balancer is %s", found.ProvisioningStatus)
	})
}

// waitDeleted waits until there is no such load balancer.
func waitDeleted(client *gophercloud.ServiceClient, id string) error {
	return eventually("load balancer deleted", func() (bool, error) {
		_, err := loadbalancers.Get(client, id).Extract()
		if _, ok := err.(gophercloud.ErrDefault404); ok {
			return true, nil
		}
		return false, err
	})
}

// waitChild waits for the load balancer to leave its change, and then for the object below it.
func waitChild(client *gophercloud.ServiceClient, lbID, what string, status func() (string, error)) error {
	return eventually(what+" ACTIVE", func() (bool, error) {
		parent, err := loadbalancers.Get(client, lbID).Extract()
		if err != nil || (parent.ProvisioningStatus != "ACTIVE" && parent.ProvisioningStatus != "ERROR") {
			return false, err
		}
		found, err := status()
		if err != nil || found == "ACTIVE" {
			return err == nil, err
		}
		if found == "PENDING_CREATE" || found == "PENDING_UPDATE" {
			return false, nil
		}
		return false, fmt.Errorf("%s is %s", what, found)
	})
}

// waitChildDeleted waits for the load balancer, and then until the object below it is gone.
func waitChildDeleted(client *gophercloud.ServiceClient, lbID string, status func() (string, error)) error {
	return eventually("object deleted", func() (bool, error) {
		parent, err := loadbalancers.Get(client, lbID).Extract()
		if err != nil || (parent.ProvisioningStatus != "ACTIVE" && parent.ProvisioningStatus != "ERROR") {
			return false, err
		}
		_, err = status()
		if _, ok := err.(gophercloud.ErrDefault404); ok {
			return true, nil
		}
		return false, err
	})
}

func listenerStatus(client *gophercloud.ServiceClient, id string) func() (string, error) {
	return func() (string, error) {
		found, err := listeners.Get(client, id).Extract()
		if err != nil {
			return "", err
		}
		return found.ProvisioningStatus, nil
	}
}

func poolStatus(client *gophercloud.ServiceClient, id string) func() (string, error) {
	return func() (string, error) {
		found, err := pools.Get(client, id).Extract()
		if err != nil {
			return "", err
		}
		return found.ProvisioningStatus, nil
	}
}

func memberStatus(client *gophercloud.ServiceClient, poolID, id string) func() (string, error) {
	return func() (string, error) {
		found, err := pools.GetMember(client, poolID, id).Extract()
		if err != nil {
			return "", err
		}
		return found.ProvisioningStatus, nil
	}
}

func monitorStatus(client *gophercloud.ServiceClient, id string) func() (string, error) {
	return func() (string, error) {
		found, err := monitors.Get(client, id).Extract()
		if err != nil {
			return "", err
		}
		return found.ProvisioningStatus, nil
	}
}

func policyStatus(client *gophercloud.ServiceClient, id string) func() (string, error) {
	return func() (string, error) {
		found, err := l7policies.Get(client, id).Extract()
		if err != nil {
			return "", err
		}
		return found.ProvisioningStatus, nil
	}
}

func ruleStatus(client *gophercloud.ServiceClient, policyID, id string) func() (string, error) {
	return func() (string, error) {
		found, err := l7policies.GetRule(client, policyID, id).Extract()
		if err != nil {
			return "", err
		}
		return found.ProvisioningStatus, nil
	}
}

// parentOf finds a pool's load balancer: directly, or by its first listener.
func parentOf(client *gophercloud.ServiceClient, pool *pools.Pool) (string, error) {
	if len(pool.Loadbalancers) > 0 {
		return pool.Loadbalancers[0].ID, nil
	}
	if len(pool.Listeners) > 0 {
		listener, err := listeners.Get(client, pool.Listeners[0].ID).Extract()
		if err != nil {
			return "", err
		}
		if len(listener.Loadbalancers) > 0 {
			return listener.Loadbalancers[0].ID, nil
		}
	}
	return "", fmt.Errorf("pool %s names neither a load balancer nor a listener", pool.ID)
}
