import type { Examples } from '../../api/description/examples.js'
import { type ChangeableKind, collectionPath, type Singular } from './kinds.js'

const commonOf = (kind: Singular, noun: string): Examples['operations'] => {
  const path = collectionPath(kind)
  const named = `$${kind.toUpperCase()}_ID`
  return {
    [`GET ${path}`]: { command: `${noun} list` },
    [`GET ${path}/{id}`]: { command: `${noun} show ${named}` },
    [`DELETE ${path}/{id}`]: { command: `${noun} delete ${named}` },
  }
}

const tagsOf = (kind: ChangeableKind, noun: string): Examples['operations'] => {
  const path = `${collectionPath(kind)}/{id}/tags`
  const named = `$${kind.toUpperCase()}_ID`
  return {
    ...commonOf(kind, noun),
    [`PUT ${path}`]: { json: { tags: ['blue', 'web'] }, command: `${noun} set ${named} --tag blue --tag web` },
    [`DELETE ${path}`]: { command: `${noun} unset ${named} --all-tag` },
    [`PUT ${path}/{tag}`]: { command: `${noun} set ${named} --tag blue` },
    [`DELETE ${path}/{tag}`]: { command: `${noun} unset ${named} --tag blue` },
  }
}

export const EXAMPLES: Examples = {
  urlVariable: 'NETWORK_URL',
  segments: { tag: 'blue', alias: 'quotas' },
  operations: {
    ...tagsOf('network', 'network'),
    'POST /v2.0/networks': {
      json: { network: { name: 'web' } },
      command: 'network create web',
    },
    'PUT /v2.0/networks/{id}': {
      json: { network: { description: 'Web servers' } },
      command: "network set $NETWORK_ID --description 'Web servers'",
    },
    ...tagsOf('subnet', 'subnet'),
    'POST /v2.0/subnets': {
      json: { subnet: { name: 'web', network_id: '$NETWORK_ID', ip_version: 4, cidr: '192.0.2.0/24' } },
      command: 'subnet create web --network $NETWORK_ID --subnet-range 192.0.2.0/24',
    },
    'PUT /v2.0/subnets/{id}': {
      json: { subnet: { dns_nameservers: ['192.0.2.53'] } },
      command: 'subnet set $SUBNET_ID --dns-nameserver 192.0.2.53',
    },
    ...tagsOf('port', 'port'),
    'POST /v2.0/ports': {
      json: { port: { name: 'web1', network_id: '$NETWORK_ID', fixed_ips: [{ subnet_id: '$SUBNET_ID' }] } },
      command: 'port create web1 --network $NETWORK_ID --fixed-ip subnet=$SUBNET_ID',
    },
    'PUT /v2.0/ports/{id}': {
      json: { port: { description: 'The first web server' } },
      command: "port set $PORT_ID --description 'The first web server'",
    },
    ...tagsOf('router', 'router'),
    'POST /v2.0/routers': {
      json: { router: { name: 'edge', external_gateway_info: { network_id: '$NETWORK_ID' } } },
      command: 'router create edge --external-gateway $NETWORK_ID',
    },
    'PUT /v2.0/routers/{id}': {
      json: { router: { routes: [{ destination: '198.51.100.0/24', nexthop: '192.0.2.9' }] } },
      command: 'router set $ROUTER_ID --route destination=198.51.100.0/24,gateway=192.0.2.9',
    },
    'PUT /v2.0/routers/{id}/add_router_interface': {
      json: { subnet_id: '$SUBNET_ID' },
      command: 'router add subnet $ROUTER_ID $SUBNET_ID',
    },
    'PUT /v2.0/routers/{id}/remove_router_interface': {
      json: { subnet_id: '$SUBNET_ID' },
      command: 'router remove subnet $ROUTER_ID $SUBNET_ID',
    },
    'PUT /v2.0/routers/{id}/add_extraroutes': {
      json: { router: { routes: [{ destination: '198.51.100.0/24', nexthop: '192.0.2.9' }] } },
      command: 'router add route $ROUTER_ID --route destination=198.51.100.0/24,gateway=192.0.2.9',
    },
    'PUT /v2.0/routers/{id}/remove_extraroutes': {
      json: { router: { routes: [{ destination: '198.51.100.0/24', nexthop: '192.0.2.9' }] } },
      command: 'router remove route $ROUTER_ID --route destination=198.51.100.0/24,gateway=192.0.2.9',
    },
    ...tagsOf('floatingip', 'floating ip'),
    'POST /v2.0/floatingips': {
      json: { floatingip: { floating_network_id: '$NETWORK_ID', port_id: '$PORT_ID' } },
      command: 'floating ip create $NETWORK_ID --port $PORT_ID',
    },
    'PUT /v2.0/floatingips/{id}': {
      json: { floatingip: { port_id: null } },
      command: 'floating ip unset $FLOATINGIP_ID --port',
    },
    ...tagsOf('security_group', 'security group'),
    'POST /v2.0/security-groups': {
      json: { security_group: { name: 'web' } },
      command: 'security group create web',
    },
    'PUT /v2.0/security-groups/{id}': {
      json: { security_group: { description: 'HTTP from everywhere' } },
      command: "security group set $SECURITY_GROUP_ID --description 'HTTP from everywhere'",
    },
    ...commonOf('security_group_rule', 'security group rule'),
    'POST /v2.0/security-group-rules': {
      json: {
        security_group_rule: {
          security_group_id: '$SECURITY_GROUP_ID',
          direction: 'ingress',
          protocol: 'tcp',
          port_range_min: 80,
          port_range_max: 80,
        },
      },
      command: 'security group rule create $SECURITY_GROUP_ID --ingress --protocol tcp --dst-port 80',
    },
    'GET /v2.0/quotas': { command: 'quota list --network' },
    'GET /v2.0/quotas/{project}': {},
    'PUT /v2.0/quotas/{project}': { json: { quota: { network: 20, port: -1 } } },
    'GET /v2.0/extensions': { command: 'extension list --network' },
    'GET /v2.0/extensions/{alias}': { command: 'extension show quotas' },
  },
}
