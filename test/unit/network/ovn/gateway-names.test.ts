import t from 'tap'
import { gatewayNames } from '../../../../controller/network/ovn/gateway-names.js'
import { INSTANCE } from '../../../../controller/ovn/northbound/desired.js'

const namesOf = (registered: string[], standing: [chassis: string, instance: string][]) =>
  gatewayNames({
    instance: 'abcdef',
    southbound: { gateways: () => registered },
    northbound: {
      client: {
        rows: () =>
          new Map(
            standing.map(([name, instance], index) => [
              String(index),
              { name: `leg_${index}`, chassis_name: name, priority: 1, external_ids: { [INSTANCE]: instance } },
            ]),
          ) as never,
      },
    },
  })

t.test('gateways are on hypervisors that are registered', async t => {
  t.same(namesOf(['one', 'two'], [['gone', 'abcdef']]), ['one', 'two'])
})

t.test('while a rebuilt southbound database has none, they stay where they are', async t => {
  const standing: [string, string][] = [
    ['two', 'abcdef'],
    ['one', 'abcdef'],
    ['two', 'abcdef'],
    ['of others', 'fedcba'],
  ]
  t.same(namesOf([], standing), ['one', 'two'])
  t.same(namesOf([], []), [])
})
