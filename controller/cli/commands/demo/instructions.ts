import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { DEFAULT_STATE_DIRECTORY } from '../../../config/load.js'
import type { ApiClient } from '../../api-client.js'
import { bold } from '../../terminal.js'
import type { DemoSite } from './https.js'
import type { DemoLoadBalancer } from './load-balancer.js'

/** What the user can do next with the running demo. */
export function instructions(
  directory: string,
  balancer: DemoLoadBalancer,
  site: DemoSite | null,
  api: ApiClient,
): string[] {
  const krater = directory === DEFAULT_STATE_DIRECTORY ? 'npx krater' : `KRATER_STATE_DIR=${directory} npx krater`
  const openstack = ['/usr/bin/openstack', '/usr/local/bin/openstack'].some(existsSync)
  return [
    bold('Krater keeps running in the background. Next steps:'),
    `  send a request            curl ${balancer.url}`,
    ...(site === null
      ? []
      : [
          `                            curl --cacert ${site.caFile} --connect-to ::${balancer.vipAddress} https://${site.expected.name}/`,
          `  see its certificate       ${krater} certificates   (it renews itself)`,
        ]),
    `  identity API              ${api.urlOf('identity')}`,
    `  load balancer API         ${api.urlOf('load-balancer')}`,
    `  network API               ${api.urlOf('network')}`,
    `  use the openstack CLI     source ${join(directory, 'openrc')}`,
    openstack
      ? '                            openstack loadbalancer list'
      : '                            (apt-get install python3-openstackclient python3-octaviaclient python3-barbicanclient), then: openstack loadbalancer list',
    '                            openstack secret list   (the key manager)',
    `  find out what is down     ${krater} explain ${balancer.id}`,
    `  inspect the amphorae      ${krater} amphora list`,
    `                            ${krater} amphora ssh ID`,
    `  check everything          ${krater} doctor`,
    `  stop the controllers      ${krater} down          (the load balancer keeps serving)`,
    `  remove everything         ${krater} down --all`,
  ]
}
