import { OWN, tokenOf } from '../clients/callers.js'
import { at } from '../clients/json-answers.js'
import { SUBNET, type TestApi } from '../clients/load-balancer-api.js'

/** What a world needs of its API. */
export const OFFERED = { providers: ['amphora', 'noop_driver'] }

/**
 * One object of every kind: a load balancer of a project with all its possible children, and the objects of
 * administrators.
 */
export async function makeWorld(api: TestApi, project = OWN, provider = 'noop_driver', role = 'member') {
  const created = await api.ask(
    'POST',
    '/v2/lbaas/loadbalancers',
    {
      loadbalancer: {
        // the default provider accepts everything, so that nothing is refused for what an amphora cannot do
        provider,
        vip_subnet_id: SUBNET,
        listeners: [
          {
            protocol: 'HTTP',
            protocol_port: 80,
            l7policies: [{ action: 'REJECT', rules: [{ type: 'PATH', compare_type: 'EQUAL_TO', value: '/x' }] }],
            default_pool: {
              name: 'p',
              protocol: 'HTTP',
              lb_algorithm: 'ROUND_ROBIN',
              members: [{ address: '10.0.0.1', protocol_port: 80 }],
              healthmonitor: { type: 'HTTP', delay: 5, timeout: 3, max_retries: 2 },
            },
          },
        ],
      },
    },
    tokenOf(role, project),
  )
  const id = (...path: (string | number)[]) => String(at(created.body, 'loadbalancer', ...path, 'id'))
  const amphora = crypto.randomUUID()
  await api.database('amphora').insert({ id: amphora, load_balancer_id: id(), status: 'ALLOCATED' })
  const [flavor, flavorProfile, zoneProfile] = [crypto.randomUUID(), crypto.randomUUID(), crypto.randomUUID()]
  await api
    .database('flavor_profile')
    .insert({ id: flavorProfile, name: 'p', provider_name: 'amphora', flavor_data: '{}' })
  await api.database('flavor').insert({ id: flavor, name: flavor, flavor_profile_id: flavorProfile })
  await api
    .database('availability_zone_profile')
    .insert({ id: zoneProfile, name: 'p', provider_name: 'amphora', availability_zone_data: '{}' })
  await api.database('availability_zone').insert({ name: zoneProfile, availability_zone_profile_id: zoneProfile })
  return {
    lb: id(),
    listener: id('listeners', 0),
    pool: id('pools', 0),
    member: id('pools', 0, 'members', 0),
    monitor: id('pools', 0, 'healthmonitor'),
    policy: id('listeners', 0, 'l7policies', 0),
    rule: id('listeners', 0, 'l7policies', 0, 'rules', 0),
    amphora,
    flavor,
    flavorProfile,
    zoneProfile,
    project,
  }
}

export type World = Awaited<ReturnType<typeof makeWorld>>
