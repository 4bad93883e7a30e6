import t from 'tap'
import type { Desired, DesiredRow } from '../../../controller/ovn/northbound/desired.js'
import { ensureAll } from '../../../controller/ovn/northbound/ensure-all.js'
import { rowUuid } from '../../../controller/ovn/northbound/row-uuid.js'
import { TransactionRefused } from '../../../controller/ovsdb/errors.js'
import { INSTANCE, startNorthbound } from '../../support/services/northbound.js'

/** A group with a rule; OVN takes priorities up to 32,767. */
function owner(name: string, priority = 1): Desired {
  const uuid = rowUuid(INSTANCE, 'group', name)
  const row: DesiredRow['row'] = { direction: 'to-lport', priority, match: 'ip4', action: 'drop' }
  return {
    ...{ owner: `filter/${name}`, generation: 0 },
    rows: [
      { table: 'Port_Group', uuid, row: { name: `krater_${name}` }, heldBy: [] },
      {
        ...{ table: 'ACL', uuid: rowUuid(INSTANCE, 'rule', name), row },
        heldBy: [{ table: 'Port_Group', uuid, column: 'acls' }],
      },
    ],
  }
}

t.test('an owner whose rows OVN refuses holds up no other', async t => {
  const northbound = await (await startNorthbound(t))()
  const names = Array.from({ length: 250 }, (_, index) => `n${index}`)
  const wanted = names.map(name => owner(name, name === 'n7' || name === 'n160' ? 40_000 : 1))
  const { refused, waiting } = await ensureAll(northbound, wanted)
  t.same(
    refused.map(({ desired }) => desired.owner),
    ['filter/n7', 'filter/n160'],
  )
  t.match(refused[0]?.error, { name: 'TransactionRefused', code: 'constraint violation' })
  t.same(waiting, [])
  t.equal(northbound.client.rows('ACL').size, 248)
  const again = await ensureAll(northbound, wanted)
  t.match(again, { change: null, differences: 0, refused: [{}, {}] })
})

t.test('what OVN refuses for good is said with its reason', async t => {
  const northbound = await (await startNorthbound(t))()
  await t.rejects(northbound.ensure([owner('one', 40_000)]), TransactionRefused)
  t.match((await northbound.ensure([owner('one')])).differences, [{ kind: 'missing' }, { kind: 'missing' }])
})
