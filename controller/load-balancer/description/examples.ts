import type { Example, Examples } from '../../api/description/examples.js'

const lb = '/v2/lbaas'

const balancers: Examples['operations'] = {
  [`GET ${lb}/loadbalancers`]: { command: 'loadbalancer list' },
  [`POST ${lb}/loadbalancers`]: {
    json: { loadbalancer: { name: 'www', vip_subnet_id: '$SUBNET_ID' } },
    command: 'loadbalancer create --name www --vip-subnet-id $SUBNET_ID --wait',
  },
  [`GET ${lb}/loadbalancers/{id}`]: { command: 'loadbalancer show $LOADBALANCER_ID' },
  [`PUT ${lb}/loadbalancers/{id}`]: {
    json: { loadbalancer: { description: 'The shop' } },
    command: "loadbalancer set $LOADBALANCER_ID --description 'The shop' --wait",
  },
  [`DELETE ${lb}/loadbalancers/{id}`]: {
    query: 'cascade=true',
    command: 'loadbalancer delete $LOADBALANCER_ID --cascade --wait',
  },
  [`GET ${lb}/loadbalancers/{id}/stats`]: { command: 'loadbalancer stats show $LOADBALANCER_ID' },
  [`GET ${lb}/loadbalancers/{id}/status`]: { command: 'loadbalancer status show $LOADBALANCER_ID' },
  [`PUT ${lb}/loadbalancers/{id}/failover`]: { command: 'loadbalancer failover $LOADBALANCER_ID --wait' },
  [`GET ${lb}/listeners`]: { command: 'loadbalancer listener list' },
  [`POST ${lb}/listeners`]: {
    json: {
      listener: { name: 'http', loadbalancer_id: '$LOADBALANCER_ID', protocol: 'HTTP', protocol_port: 80 },
    },
    command: 'loadbalancer listener create $LOADBALANCER_ID --name http --protocol HTTP --protocol-port 80 --wait',
  },
  [`GET ${lb}/listeners/{id}`]: { command: 'loadbalancer listener show $LISTENER_ID' },
  [`PUT ${lb}/listeners/{id}`]: {
    json: { listener: { default_pool_id: '$POOL_ID', connection_limit: 10_000 } },
    command: 'loadbalancer listener set $LISTENER_ID --default-pool $POOL_ID --connection-limit 10000 --wait',
  },
  [`DELETE ${lb}/listeners/{id}`]: { command: 'loadbalancer listener delete $LISTENER_ID --wait' },
  [`GET ${lb}/listeners/{id}/stats`]: { command: 'loadbalancer listener stats show $LISTENER_ID' },
}

const pools: Examples['operations'] = {
  [`GET ${lb}/pools`]: { command: 'loadbalancer pool list' },
  [`POST ${lb}/pools`]: {
    json: {
      pool: {
        name: 'web',
        loadbalancer_id: '$LOADBALANCER_ID',
        protocol: 'HTTP',
        lb_algorithm: 'ROUND_ROBIN',
        session_persistence: { type: 'HTTP_COOKIE' },
      },
    },
    command:
      'loadbalancer pool create --name web --loadbalancer $LOADBALANCER_ID --protocol HTTP --lb-algorithm ROUND_ROBIN --session-persistence type=HTTP_COOKIE --wait',
  },
  [`GET ${lb}/pools/{id}`]: { command: 'loadbalancer pool show $POOL_ID' },
  [`PUT ${lb}/pools/{id}`]: {
    json: { pool: { lb_algorithm: 'LEAST_CONNECTIONS' } },
    command: 'loadbalancer pool set $POOL_ID --lb-algorithm LEAST_CONNECTIONS --wait',
  },
  [`DELETE ${lb}/pools/{id}`]: { command: 'loadbalancer pool delete $POOL_ID --wait' },
  [`GET ${lb}/pools/{pool}/members`]: { command: 'loadbalancer member list $POOL_ID' },
  [`POST ${lb}/pools/{pool}/members`]: {
    json: { member: { name: 'web1', address: '10.0.0.11', protocol_port: 8080 } },
    command: 'loadbalancer member create $POOL_ID --name web1 --address 10.0.0.11 --protocol-port 8080 --wait',
  },
  [`PUT ${lb}/pools/{pool}/members`]: {
    query: 'additive_only=true',
    json: {
      members: [
        { name: 'web2', address: '10.0.0.12', protocol_port: 8080 },
        { name: 'web3', address: '10.0.0.13', protocol_port: 8080, backup: true },
      ],
    },
  },
  [`GET ${lb}/pools/{pool}/members/{id}`]: { command: 'loadbalancer member show $POOL_ID $MEMBER_ID' },
  [`PUT ${lb}/pools/{pool}/members/{id}`]: {
    json: { member: { weight: 0 } },
    command: 'loadbalancer member set $POOL_ID $MEMBER_ID --weight 0 --wait',
  },
  [`DELETE ${lb}/pools/{pool}/members/{id}`]: { command: 'loadbalancer member delete $POOL_ID $MEMBER_ID --wait' },
  [`GET ${lb}/healthmonitors`]: { command: 'loadbalancer healthmonitor list' },
  [`POST ${lb}/healthmonitors`]: {
    json: {
      healthmonitor: {
        pool_id: '$POOL_ID',
        type: 'HTTP',
        url_path: '/health',
        delay: 5,
        timeout: 3,
        max_retries: 2,
      },
    },
    command:
      'loadbalancer healthmonitor create $POOL_ID --type HTTP --url-path /health --delay 5 --timeout 3 --max-retries 2 --wait',
  },
  [`GET ${lb}/healthmonitors/{id}`]: { command: 'loadbalancer healthmonitor show $HEALTHMONITOR_ID' },
  [`PUT ${lb}/healthmonitors/{id}`]: {
    json: { healthmonitor: { expected_codes: '200-204' } },
    command: 'loadbalancer healthmonitor set $HEALTHMONITOR_ID --expected-codes 200-204 --wait',
  },
  [`DELETE ${lb}/healthmonitors/{id}`]: { command: 'loadbalancer healthmonitor delete $HEALTHMONITOR_ID --wait' },
}

const policies: Examples['operations'] = {
  [`GET ${lb}/l7policies`]: { command: 'loadbalancer l7policy list' },
  [`POST ${lb}/l7policies`]: {
    json: {
      l7policy: {
        name: 'to-https',
        listener_id: '$LISTENER_ID',
        action: 'REDIRECT_PREFIX',
        redirect_prefix: 'https://www.example.com',
      },
    },
    command:
      'loadbalancer l7policy create $LISTENER_ID --name to-https --action REDIRECT_PREFIX --redirect-prefix https://www.example.com --wait',
  },
  [`GET ${lb}/l7policies/{id}`]: { command: 'loadbalancer l7policy show $L7POLICY_ID' },
  [`PUT ${lb}/l7policies/{id}`]: {
    json: { l7policy: { position: 1 } },
    command: 'loadbalancer l7policy set $L7POLICY_ID --position 1 --wait',
  },
  [`DELETE ${lb}/l7policies/{id}`]: { command: 'loadbalancer l7policy delete $L7POLICY_ID --wait' },
  [`GET ${lb}/l7policies/{policy}/rules`]: { command: 'loadbalancer l7rule list $L7POLICY_ID' },
  // Without --wait: python-octaviaclient then asks for the rule with both ids swapped.
  [`POST ${lb}/l7policies/{policy}/rules`]: {
    json: { rule: { type: 'PATH', compare_type: 'STARTS_WITH', value: '/cart' } },
    command: 'loadbalancer l7rule create $L7POLICY_ID --type PATH --compare-type STARTS_WITH --value /cart',
  },
  [`GET ${lb}/l7policies/{policy}/rules/{id}`]: { command: 'loadbalancer l7rule show $L7POLICY_ID $RULE_ID' },
  [`PUT ${lb}/l7policies/{policy}/rules/{id}`]: {
    json: { rule: { invert: true } },
    command: 'loadbalancer l7rule set $L7POLICY_ID $RULE_ID --invert',
  },
  [`DELETE ${lb}/l7policies/{policy}/rules/{id}`]: {
    command: 'loadbalancer l7rule delete $L7POLICY_ID $RULE_ID --wait',
  },
}

const administration: Examples['operations'] = {
  [`GET ${lb}/quotas`]: { command: 'loadbalancer quota list' },
  [`GET ${lb}/quotas/defaults`]: { command: 'loadbalancer quota defaults show' },
  [`GET ${lb}/quotas/{project}`]: { command: 'loadbalancer quota show $PROJECT_ID' },
  [`PUT ${lb}/quotas/{project}`]: {
    json: { quota: { loadbalancer: 20, member: 500 } },
    command: 'loadbalancer quota set $PROJECT_ID --loadbalancer 20 --member 500',
  },
  [`DELETE ${lb}/quotas/{project}`]: { command: 'loadbalancer quota reset $PROJECT_ID' },
  [`GET ${lb}/providers`]: { command: 'loadbalancer provider list' },
  [`GET ${lb}/providers/{provider}/flavor_capabilities`]: {
    command: 'loadbalancer provider capability list amphora --flavor',
  },
  [`GET ${lb}/providers/{provider}/availability_zone_capabilities`]: {
    command: 'loadbalancer provider capability list amphora --availability-zone',
  },
  ...kind('flavorprofile', 'FLAVORPROFILE_ID', {
    create: { name: 'pair', provider_name: 'amphora', flavor_data: '{"loadbalancer_topology": "ACTIVE_STANDBY"}' },
    options: `--name pair --provider amphora --flavor-data '{"loadbalancer_topology": "ACTIVE_STANDBY"}'`,
    update: { name: 'active-standby' },
    changes: '--name active-standby',
  }),
  ...kind('flavor', 'FLAVOR_ID', {
    create: { name: 'pair', flavor_profile_id: '$FLAVORPROFILE_ID' },
    options: '--name pair --flavorprofile $FLAVORPROFILE_ID',
    update: { name: 'active-standby' },
    changes: '--name active-standby',
  }),
  ...kind('availabilityzoneprofile', 'AVAILABILITYZONEPROFILE_ID', {
    key: 'availability_zone_profile',
    create: { name: 'here', provider_name: 'amphora', availability_zone_data: '{"compute_zone": "local"}' },
    options: `--name here --provider amphora --availability-zone-data '{"compute_zone": "local"}'`,
    update: { name: 'this-machine' },
    changes: '--name this-machine',
  }),
  ...kind('availabilityzone', null, {
    key: 'availability_zone',
    create: { name: 'zone-1', availability_zone_profile_id: '$AVAILABILITYZONEPROFILE_ID' },
    options: '--name zone-1 --availabilityzoneprofile $AVAILABILITYZONEPROFILE_ID',
    update: { description: 'The first rack' },
    changes: "--description 'The first rack'",
  }),
  'GET /v2/octavia/amphorae': { command: 'loadbalancer amphora list' },
  'GET /v2/octavia/amphorae/{id}': { command: 'loadbalancer amphora show $AMPHORA_ID' },
  'DELETE /v2/octavia/amphorae/{id}': { command: 'loadbalancer amphora delete $AMPHORA_ID' },
  'GET /v2/octavia/amphorae/{id}/stats': { command: 'loadbalancer amphora stats show $AMPHORA_ID' },
  'PUT /v2/octavia/amphorae/{id}/failover': { command: 'loadbalancer amphora failover $AMPHORA_ID --wait' },
  'PUT /v2/octavia/amphorae/{id}/config': { command: 'loadbalancer amphora configure $AMPHORA_ID' },
}

/** Examples of the five operations on flavors, availability zones and their profiles. */
function kind(
  word: string,
  id: string | null,
  given: { key?: string; create: object; options: string; update: object; changes: string },
): Record<string, Example> {
  const { key = word, create, options, update, changes } = given
  const path = `${lb}/${word}s`
  const one = `${path}/{${id === null ? 'name' : 'id'}}`
  const named = id === null ? 'zone-1' : `$${id}`
  return {
    [`GET ${path}`]: { command: `loadbalancer ${word} list` },
    [`POST ${path}`]: { json: { [key]: create }, command: `loadbalancer ${word} create ${options}` },
    [`GET ${one}`]: { command: `loadbalancer ${word} show ${named}` },
    [`PUT ${one}`]: { json: { [key]: update }, command: `loadbalancer ${word} set ${named} ${changes}` },
    [`DELETE ${one}`]: { command: `loadbalancer ${word} delete ${named}` },
  }
}

export const EXAMPLES: Examples = {
  urlVariable: 'LOAD_BALANCER_URL',
  segments: { policy: '$L7POLICY_ID', provider: 'amphora', name: 'zone-1' },
  operations: { ...balancers, ...pools, ...policies, ...administration },
}
