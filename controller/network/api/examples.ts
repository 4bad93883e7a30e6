import type { Examples } from '../../api/description/examples.js'

const tagsOf = (collection: string): Examples['operations'] => {
  const path = `/v2.0/${collection}/{id}/tags`
  const kind = collection.replace(/s$/, '')
  const named = `$${kind.toUpperCase()}_ID`
  return {
    [`GET /v2.0/${collection}`]: { command: `${kind} list` },
    [`GET /v2.0/${collection}/{id}`]: { command: `${kind} show ${named}` },
    [`DELETE /v2.0/${collection}/{id}`]: { command: `${kind} delete ${named}` },
    [`PUT ${path}`]: { json: { tags: ['blue', 'web'] }, command: `${kind} set ${named} --tag blue --tag web` },
    [`DELETE ${path}`]: { command: `${kind} unset ${named} --all-tag` },
    [`PUT ${path}/{tag}`]: { command: `${kind} set ${named} --tag blue` },
    [`DELETE ${path}/{tag}`]: { command: `${kind} unset ${named} --tag blue` },
  }
}

export const EXAMPLES: Examples = {
  urlVariable: 'NETWORK_URL',
  segments: { tag: 'blue', alias: 'quotas' },
  operations: {
    ...tagsOf('networks'),
    'POST /v2.0/networks': {
      json: { network: { name: 'web' } },
      command: 'network create web',
    },
    'PUT /v2.0/networks/{id}': {
      json: { network: { description: 'Web servers' } },
      command: "network set $NETWORK_ID --description 'Web servers'",
    },
    ...tagsOf('subnets'),
    'POST /v2.0/subnets': {
      json: { subnet: { name: 'web', network_id: '$NETWORK_ID', ip_version: 4, cidr: '192.0.2.0/24' } },
      command: 'subnet create web --network $NETWORK_ID --subnet-range 192.0.2.0/24',
    },
    'PUT /v2.0/subnets/{id}': {
      json: { subnet: { dns_nameservers: ['192.0.2.53'] } },
      command: 'subnet set $SUBNET_ID --dns-nameserver 192.0.2.53',
    },
    ...tagsOf('ports'),
    'POST /v2.0/ports': {
      json: { port: { name: 'web1', network_id: '$NETWORK_ID', fixed_ips: [{ subnet_id: '$SUBNET_ID' }] } },
      command: 'port create web1 --network $NETWORK_ID --fixed-ip subnet=$SUBNET_ID',
    },
    'PUT /v2.0/ports/{id}': {
      json: { port: { description: 'The first web server' } },
      command: "port set $PORT_ID --description 'The first web server'",
    },
    'GET /v2.0/quotas': { command: 'quota list --network' },
    'GET /v2.0/quotas/{project}': {},
    'PUT /v2.0/quotas/{project}': { json: { quota: { network: 20, port: -1 } } },
    'GET /v2.0/extensions': { command: 'extension list --network' },
    'GET /v2.0/extensions/{alias}': { command: 'extension show quotas' },
  },
}
