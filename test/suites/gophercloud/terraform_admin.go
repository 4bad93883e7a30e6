package main

import (
	"fmt"

	"github.com/gophercloud/gophercloud"
	"github.com/gophercloud/gophercloud/openstack/identity/v3/tokens"
)

type object = map[string]interface{}

// whoAmI reads project and user from the token, as the provider does for its data sources.
func (c *clients) whoAmI() error {
	token := tokens.Get(c.identity, c.identity.TokenID)
	project, err := token.ExtractProject()
	if err != nil {
		return err
	}
	user, err := token.ExtractUser()
	if err != nil {
		return err
	}
	c.projectID, c.userID = project.ID, user.ID
	return nil
}

// The library's version lacks these resources; later ones send exactly this.
func post(client *gophercloud.ServiceClient, path, key string, body object) (object, error) {
	var answer map[string]object
	_, err := client.Post(client.ServiceURL("lbaas", path), object{key: body}, &answer, &gophercloud.RequestOpts{OkCodes: []int{201}})
	return answer[key], err
}

func get(client *gophercloud.ServiceClient, key string, path ...string) (object, error) {
	var answer map[string]object
	_, err := client.Get(client.ServiceURL(append([]string{"lbaas"}, path...)...), &answer, nil)
	return answer[key], err
}

func put(client *gophercloud.ServiceClient, key string, body object, path ...string) (object, error) {
	var answer map[string]object
	url := client.ServiceURL(append([]string{"lbaas"}, path...)...)
	_, err := client.Put(url, object{key: body}, &answer, &gophercloud.RequestOpts{OkCodes: []int{200, 202, 203}})
	return answer[key], err
}

func remove(client *gophercloud.ServiceClient, path ...string) error {
	_, err := client.Delete(client.ServiceURL(append([]string{"lbaas"}, path...)...), nil)
	return err
}

func terraformQuotaAndFlavor(s story, c *clients) {
	client := c.loadBalancer
	before, err := get(client, "quota", "quotas", c.projectID)
	s.do("reads the quota", err)
	_, err = put(client, "quota", object{"loadbalancer": 7, "listener": 8, "pool": 9, "member": 10, "healthmonitor": 11, "l7policy": 12, "l7rule": 13}, "quotas", c.projectID)
	s.do("sets the quota", err)
	read, err := get(client, "quota", "quotas", c.projectID)
	s.do("reads the new quota", err)
	s.same("the quota is as planned", fmt.Sprint(read["load_balancer"], read["listener"], read["pool"], read["member"], read["health_monitor"], read["l7policy"], read["l7rule"]), "7 8 9 10 11 12 13")
	s.do("deletes the quota", remove(client, "quotas", c.projectID))
	after, err := get(client, "quota", "quotas", c.projectID)
	s.do("reads the default quota", err)
	s.same("the default is back", after, before)

	profile, err := post(client, "flavorprofiles", "flavorprofile", object{"name": "terraform", "provider_name": "amphora", "flavor_data": `{"loadbalancer_topology": "SINGLE"}`})
	s.do("creates a flavor profile", err)
	profileID := profile["id"].(string)
	flavor, err := post(client, "flavors", "flavor", object{"name": "terraform", "flavor_profile_id": profileID, "enabled": true, "description": "by Terraform"})
	s.do("creates a flavor", err)
	flavorID := flavor["id"].(string)
	_, err = put(client, "flavor", object{"name": "renamed", "enabled": false}, "flavors", flavorID)
	s.do("updates the flavor", err)
	found, err := get(client, "flavor", "flavors", flavorID)
	s.do("reads the flavor", err)
	s.same("the flavor is as planned", []interface{}{found["name"], found["enabled"], found["flavor_profile_id"]}, []interface{}{"renamed", false, profileID})
	s.do("deletes the flavor", remove(client, "flavors", flavorID))
	s.do("deletes the flavor profile", remove(client, "flavorprofiles", profileID))
	_, err = get(client, "flavor", "flavors", flavorID)
	s.gone("the flavor is gone", err)
}
