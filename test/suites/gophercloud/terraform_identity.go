package main

import (
	"os"

	"github.com/gophercloud/gophercloud"
	"github.com/gophercloud/gophercloud/openstack"
	"github.com/gophercloud/gophercloud/openstack/identity/v3/applicationcredentials"
	"github.com/gophercloud/gophercloud/openstack/identity/v3/endpoints"
	"github.com/gophercloud/gophercloud/openstack/identity/v3/groups"
	"github.com/gophercloud/gophercloud/openstack/identity/v3/projects"
	"github.com/gophercloud/gophercloud/openstack/identity/v3/roles"
	catalogue "github.com/gophercloud/gophercloud/openstack/identity/v3/services"
	"github.com/gophercloud/gophercloud/openstack/identity/v3/users"
	"github.com/gophercloud/gophercloud/openstack/loadbalancer/v2/loadbalancers"
)

func terraformIdentity(s story, c, admin *clients) {
	client := admin.identity
	project, err := projects.Create(client, projects.CreateOpts{Name: "terraform", Description: "by Terraform", Enabled: yes()}).Extract()
	s.do("creates a project", err)
	description := "changed"
	_, err = projects.Update(client, project.ID, projects.UpdateOpts{Name: "renamed", Description: &description}).Extract()
	s.do("updates the project", err)
	pages, err := projects.List(client, projects.ListOpts{Name: "renamed", Enabled: yes()}).AllPages()
	s.do("finds the project by name", err)
	found, err := projects.ExtractProjects(pages)
	s.do("reads the list of projects", err)
	s.same("the project is as planned", len(found) == 1 && found[0].Description == "changed" && found[0].DomainID == "default", true)

	user := terraformUser(s, client, project.ID)
	terraformRoles(s, client, project.ID, user)
	terraformGroup(s, client, user)
	terraformCatalogue(s, client)
	terraformApplicationCredential(s, c)

	s.do("deletes the user", users.Delete(client, user).ExtractErr())
	_, err = users.Get(client, user).Extract()
	s.gone("the user is gone", err)
	s.do("deletes the project", projects.Delete(client, project.ID).ExtractErr())
	_, err = projects.Get(client, project.ID).Extract()
	s.gone("the project is gone", err)
}

func terraformUser(s story, client *gophercloud.ServiceClient, project string) string {
	user, err := users.Create(client, users.CreateOpts{
		Name: "terraform", Password: "first-password", DefaultProjectID: project, Description: "by Terraform", Enabled: yes(),
		Options: map[users.Option]interface{}{users.IgnorePasswordExpiry: true, users.MultiFactorAuthEnabled: false},
		Extra:   map[string]interface{}{"email": "terraform@example.org"},
	}).Extract()
	s.do("creates a user", err)
	description := "changed"
	_, err = users.Update(client, user.ID, users.UpdateOpts{Description: &description, Password: "second-password", Enabled: yes()}).Extract()
	s.do("updates the user", err)
	read, err := users.Get(client, user.ID).Extract()
	s.do("reads the user", err)
	s.same("the user is as planned", []interface{}{read.Name, read.DefaultProjectID, read.Description, read.Enabled, read.Extra["email"]},
		[]interface{}{"terraform", project, "changed", true, "terraform@example.org"})
	return user.ID
}

func terraformRoles(s story, client *gophercloud.ServiceClient, project, user string) {
	role, err := roles.Create(client, roles.CreateOpts{Name: "terraform"}).Extract()
	s.do("creates a role", err)
	_, err = roles.Update(client, role.ID, roles.UpdateOpts{Name: "terraform-role"}).Extract()
	s.do("renames the role", err)
	s.do("assigns it", roles.Assign(client, role.ID, roles.AssignOpts{UserID: user, ProjectID: project}).ExtractErr())
	pages, err := roles.ListAssignments(client, roles.ListAssignmentsOpts{UserID: user, ScopeProjectID: project, RoleID: role.ID}).AllPages()
	s.do("lists assignments", err)
	found, err := roles.ExtractRoleAssignments(pages)
	s.do("reads the assignments", err)
	s.same("the assignment is there", len(found) == 1 && found[0].Role.ID == role.ID && found[0].User.ID == user && found[0].Scope.Project.ID == project, true)
	options := gophercloud.AuthOptions{
		IdentityEndpoint: os.Getenv("OS_AUTH_URL"), UserID: user, Password: "second-password", TenantID: project,
	}
	_, err = openstack.AuthenticatedClient(options)
	s.do("the user logs in with the new password", err)
	s.do("takes the role away", roles.Unassign(client, role.ID, roles.UnassignOpts{UserID: user, ProjectID: project}).ExtractErr())
	_, err = openstack.AuthenticatedClient(options)
	_, refused := err.(gophercloud.ErrDefault401)
	s.same("the user can no longer log in to the project", refused, true)
	s.do("deletes the role", roles.Delete(client, role.ID).ExtractErr())
}

func terraformGroup(s story, client *gophercloud.ServiceClient, user string) {
	group, err := groups.Create(client, groups.CreateOpts{Name: "terraform", Description: "by Terraform"}).Extract()
	s.do("creates a group", err)
	s.do("adds the user", users.AddToGroup(client, group.ID, user).ExtractErr())
	member, err := users.IsMemberOfGroup(client, group.ID, user).Extract()
	s.do("checks the membership", err)
	s.same("the user is a member", member, true)
	s.do("removes the user", users.RemoveFromGroup(client, group.ID, user).ExtractErr())
	s.do("deletes the group", groups.Delete(client, group.ID).ExtractErr())
}

func terraformCatalogue(s story, client *gophercloud.ServiceClient) {
	service, err := catalogue.Create(client, catalogue.CreateOpts{Type: "terraform", Enabled: yes(), Extra: map[string]interface{}{"name": "terraform"}}).Extract()
	s.do("creates a service", err)
	endpoint, err := endpoints.Create(client, endpoints.CreateOpts{
		Availability: gophercloud.AvailabilityPublic, Name: "terraform", URL: "http://192.0.2.1/", ServiceID: service.ID, Region: os.Getenv("OS_REGION_NAME"),
	}).Extract()
	s.do("creates an endpoint", err)
	_, err = endpoints.Update(client, endpoint.ID, endpoints.UpdateOpts{URL: "http://192.0.2.2/"}).Extract()
	s.do("updates the endpoint", err)
	s.do("deletes the endpoint", endpoints.Delete(client, endpoint.ID).ExtractErr())
	s.do("deletes the service", catalogue.Delete(client, service.ID).ExtractErr())
}

// terraformApplicationCredential creates one, and uses it as a provider's configuration would.
func terraformApplicationCredential(s story, c *clients) {
	created, err := applicationcredentials.Create(c.identity, c.userID, applicationcredentials.CreateOpts{Name: "terraform", Description: "by Terraform"}).Extract()
	s.do("creates an application credential", err)
	read, err := applicationcredentials.Get(c.identity, c.userID, created.ID).Extract()
	s.do("reads it", err)
	s.same("it is as planned", []interface{}{read.Name, read.ProjectID, read.Unrestricted, read.Secret}, []interface{}{"terraform", c.projectID, false, ""})
	provider, err := openstack.AuthenticatedClient(gophercloud.AuthOptions{
		IdentityEndpoint: os.Getenv("OS_AUTH_URL"), ApplicationCredentialID: created.ID, ApplicationCredentialSecret: created.Secret,
	})
	s.do("logs in with it", err)
	own, err := services(provider)
	s.do("finds the services with it", err)
	_, err = loadbalancers.List(own.loadBalancer, loadbalancers.ListOpts{}).AllPages()
	s.do("lists load balancers with it", err)
	s.do("deletes it", applicationcredentials.Delete(c.identity, c.userID, created.ID).ExtractErr())
	_, err = loadbalancers.List(own.loadBalancer, loadbalancers.ListOpts{}).AllPages()
	_, refused := err.(gophercloud.ErrDefault401)
	s.same("it no longer works", refused, true)
}
