/** The keys of each object in answers, as clients of Octavia know them. */
export const LB_KEYS =
  'id name description provisioning_status operating_status operating_reason admin_state_up project_id tenant_id created_at updated_at vip_address vip_port_id vip_subnet_id vip_network_id vip_sg_ids additional_vips listeners pools provider flavor_id vip_qos_policy_id tags availability_zone vip_vnic_type'
export const LISTENER_KEYS =
  'id name description provisioning_status operating_status operating_reason admin_state_up protocol protocol_port connection_limit default_tls_container_ref sni_container_refs project_id tenant_id default_pool_id l7policies insert_headers created_at updated_at loadbalancers timeout_client_data timeout_member_connect timeout_member_data timeout_tcp_inspect tags client_ca_tls_container_ref client_authentication client_crl_container_ref allowed_cidrs tls_ciphers tls_versions alpn_protocols hsts_max_age hsts_include_subdomains hsts_preload'
export const POOL_KEYS =
  'id name description provisioning_status operating_status operating_reason admin_state_up protocol lb_algorithm session_persistence deregistration_delay project_id tenant_id loadbalancers listeners created_at updated_at members tags tls_container_ref ca_tls_container_ref crl_container_ref tls_enabled tls_ciphers tls_versions alpn_protocols'
export const MEMBER_KEYS =
  'id name operating_status operating_reason provisioning_status admin_state_up address protocol_port weight backup subnet_id project_id tenant_id created_at updated_at monitor_address monitor_port tags vnic_type'
export const MONITOR_KEYS =
  'id name type delay timeout max_retries max_retries_down http_method url_path expected_codes admin_state_up project_id tenant_id pools provisioning_status operating_status created_at updated_at tags http_version domain_name'
export const L7_POLICY_KEYS =
  'id name description provisioning_status operating_status admin_state_up project_id tenant_id action listener_id redirect_pool_id redirect_url redirect_prefix position rules created_at updated_at tags redirect_http_code'
export const L7_RULE_KEYS =
  'id type compare_type key value invert provisioning_status operating_status created_at updated_at project_id tenant_id admin_state_up tags'
export const AMPHORA_KEYS =
  'id loadbalancer_id compute_id lb_network_ip vrrp_ip ha_ip vrrp_port_id ha_port_id cert_expiration cert_busy role status vrrp_interface vrrp_id vrrp_priority cached_zone created_at updated_at image_id compute_flavor'

export const keysOf = (value: unknown): string => Object.keys(Object(value)).sort().join(' ')
export const sorted = (keys: string): string => keys.split(' ').sort().join(' ')
export const NOWHERE = 'ffffffff-ffff-4fff-8fff-ffffffffffff'
