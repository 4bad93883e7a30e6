package main

import (
	"path"
	"time"

	"github.com/gophercloud/gophercloud"
	"github.com/gophercloud/gophercloud/openstack/keymanager/v1/acls"
	"github.com/gophercloud/gophercloud/openstack/keymanager/v1/containers"
	"github.com/gophercloud/gophercloud/openstack/keymanager/v1/orders"
	"github.com/gophercloud/gophercloud/openstack/keymanager/v1/secrets"
)

func terraformKeyManager(s story, c *clients) {
	client := c.keyManager
	certificate := terraformSecret(s, client, "certificate", secrets.CertificateSecret)
	key := terraformSecret(s, client, "key", secrets.PrivateSecret)
	terraformTwoSteps(s, client)
	terraformSecretDetails(s, c, path.Base(certificate))
	terraformContainer(s, c, certificate, key)
	terraformOrder(s, client)
	for _, ref := range []string{certificate, key} {
		s.do("deletes a secret", secrets.Delete(client, path.Base(ref)).ExtractErr())
		_, err := secrets.Get(client, path.Base(ref)).Extract()
		s.gone("the secret is gone", err)
	}
}

// waitSecret waits until the secret has its payload.
func waitSecret(client *gophercloud.ServiceClient, id string) error {
	return eventually("secret ACTIVE", func() (bool, error) {
		found, err := secrets.Get(client, id).Extract()
		return err == nil && found.Status == "ACTIVE", err
	})
}

func terraformSecret(s story, client *gophercloud.ServiceClient, name string, kind secrets.SecretType) string {
	expires := time.Now().Add(24 * time.Hour).Truncate(time.Second).UTC()
	secret, err := secrets.Create(client, secrets.CreateOpts{
		Name: name, SecretType: kind, Algorithm: "rsa", BitLength: 2048, Mode: "none",
		Payload: "payload of " + name, PayloadContentType: "text/plain", Expiration: &expires,
	}).Extract()
	s.do("creates a secret", err)
	id := path.Base(secret.SecretRef)
	s.do("waits for the secret", waitSecret(client, id))
	read, err := secrets.Get(client, id).Extract()
	s.do("reads the secret", err)
	s.same("the secret is as planned", []interface{}{read.Name, read.SecretType, read.Algorithm, read.BitLength, read.Mode, read.ContentTypes, read.Expiration},
		[]interface{}{name, string(kind), "rsa", 2048, "none", map[string]string{"default": "text/plain"}, expires})
	payload, err := secrets.GetPayload(client, id, secrets.GetPayloadOpts{PayloadContentType: "text/plain"}).Extract()
	s.do("reads the payload", err)
	s.same("the payload is as planned", string(payload), "payload of "+name)
	return secret.SecretRef
}

// terraformTwoSteps stores a payload in a second request.
func terraformTwoSteps(s story, client *gophercloud.ServiceClient) {
	secret, err := secrets.Create(client, secrets.CreateOpts{Name: "later", SecretType: secrets.OpaqueSecret}).Extract()
	s.do("creates a secret without payload", err)
	id := path.Base(secret.SecretRef)
	s.do("stores the payload", secrets.Update(client, id, secrets.UpdateOpts{
		ContentType: "application/octet-stream", ContentEncoding: "base64", Payload: "aGVsbG8=",
	}).ExtractErr())
	payload, err := secrets.GetPayload(client, id, secrets.GetPayloadOpts{PayloadContentType: "application/octet-stream"}).Extract()
	s.do("reads the stored payload", err)
	s.same("it is decoded", string(payload), "hello")
	s.do("deletes that secret", secrets.Delete(client, id).ExtractErr())
}

func terraformSecretDetails(s story, c *clients, id string) {
	client := c.keyManager
	_, err := secrets.CreateMetadata(client, id, secrets.MetadataOpts{"purpose": "web", "owner": "terraform"}).Extract()
	s.do("sets the metadata", err)
	metadata, err := secrets.GetMetadata(client, id).Extract()
	s.do("reads the metadata", err)
	s.same("the metadata is as planned", metadata, map[string]string{"purpose": "web", "owner": "terraform"})
	_, err = secrets.UpdateMetadatum(client, id, secrets.MetadatumOpts{Key: "owner", Value: "us"}).Extract()
	s.do("changes one entry", err)
	s.do("removes another", secrets.DeleteMetadatum(client, id, "purpose").ExtractErr())

	users := []string{c.userID}
	_, err = acls.SetSecretACL(client, id, acls.SetOpts{{Type: "read", Users: &users, ProjectAccess: no()}}).Extract()
	s.do("sets the ACL", err)
	acl, err := acls.GetSecretACL(client, id).Extract()
	s.do("reads the ACL", err)
	s.same("the ACL is as planned", []interface{}{(*acl)["read"].Users, (*acl)["read"].ProjectAccess}, []interface{}{users, false})
	_, err = acls.UpdateSecretACL(client, id, acls.SetOpts{{Type: "read", ProjectAccess: yes()}}).Extract()
	s.do("updates the ACL", err)
	s.do("deletes the ACL", acls.DeleteSecretACL(client, id).ExtractErr())
}

func terraformContainer(s story, c *clients, certificate, key string) {
	client := c.keyManager
	container, err := containers.Create(client, containers.CreateOpts{
		Type: containers.CertificateContainer, Name: "web",
		SecretRefs: []containers.SecretRef{{Name: "certificate", SecretRef: certificate}, {Name: "private_key", SecretRef: key}},
	}).Extract()
	s.do("creates a container", err)
	id := path.Base(container.ContainerRef)
	s.do("waits for the container", eventually("container ACTIVE", func() (bool, error) {
		found, err := containers.Get(client, id).Extract()
		return err == nil && found.Status == "ACTIVE", err
	}))
	consumer := containers.CreateConsumerOpts{Name: "web", URL: "http://www.example.org/"}
	_, err = containers.CreateConsumer(client, id, consumer).Extract()
	s.do("registers a consumer", err)
	read, err := containers.Get(client, id).Extract()
	s.do("reads the container", err)
	s.same("the container is as planned", []interface{}{read.Name, read.Type, len(read.SecretRefs), len(read.Consumers)}, []interface{}{"web", "certificate", 2, 1})
	_, err = containers.DeleteConsumer(client, id, containers.DeleteConsumerOpts(consumer)).Extract()
	s.do("removes the consumer", err)
	_, err = acls.SetContainerACL(client, id, acls.SetOpts{{Type: "read", ProjectAccess: no()}}).Extract()
	s.do("sets the container's ACL", err)
	pages, err := containers.List(client, containers.ListOpts{Name: "web"}).AllPages()
	s.do("lists containers by name", err)
	found, err := containers.ExtractContainers(pages)
	s.do("reads the list of containers", err)
	s.same("the container is found", len(found), 1)
	s.do("deletes the container", containers.Delete(client, id).ExtractErr())
	_, err = containers.Get(client, id).Extract()
	s.gone("the container is gone", err)
}

func terraformOrder(s story, client *gophercloud.ServiceClient) {
	order, err := orders.Create(client, orders.CreateOpts{
		Type: orders.KeyOrder,
		Meta: orders.MetaOpts{Algorithm: "aes", BitLength: 256, Mode: "gcm", Name: "ordered", PayloadContentType: "application/octet-stream"},
	}).Extract()
	s.do("creates an order", err)
	id := path.Base(order.OrderRef)
	s.do("waits for the order", eventually("order ACTIVE", func() (bool, error) {
		found, err := orders.Get(client, id).Extract()
		return err == nil && found.Status == "ACTIVE", err
	}))
	read, err := orders.Get(client, id).Extract()
	s.do("reads the order", err)
	s.same("the order is as planned", []interface{}{read.Type, read.Meta.Name, read.Meta.Algorithm, read.Meta.BitLength}, []interface{}{"key", "ordered", "aes", 256})
	key := path.Base(read.SecretRef)
	payload, err := secrets.GetPayload(client, key, secrets.GetPayloadOpts{PayloadContentType: "application/octet-stream"}).Extract()
	s.do("reads the key", err)
	s.same("the key has 256 bits", len(payload), 32)
	s.do("deletes the order", orders.Delete(client, id).ExtractErr())
	_, err = orders.Get(client, id).Extract()
	s.gone("the order is gone", err)
	s.do("deletes the key", secrets.Delete(client, key).ExtractErr())
}
