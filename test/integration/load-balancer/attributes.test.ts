import t from 'tap'
import * as z from 'zod'
import { many, one } from '../../../controller/database/query.js'
import { boundColumns, insertion, sql, trusted } from '../../../controller/database/sql.js'
import { answerSchema, requestSchema } from '../../../controller/load-balancer/description/schemas.js'
import { availabilityZoneProfile } from '../../../controller/load-balancer/objects/availability-zone-profiles/resource.js'
import { availabilityZone } from '../../../controller/load-balancer/objects/availability-zones/resource.js'
import { flavorProfile } from '../../../controller/load-balancer/objects/flavor-profiles/resource.js'
import { flavor } from '../../../controller/load-balancer/objects/flavors/resource.js'
import { healthMonitor } from '../../../controller/load-balancer/objects/health-monitors/resource.js'
import { l7Policy } from '../../../controller/load-balancer/objects/l7-policies/resource.js'
import { l7Rule } from '../../../controller/load-balancer/objects/l7-rules/resource.js'
import { listener } from '../../../controller/load-balancer/objects/listeners/resource.js'
import { loadBalancer } from '../../../controller/load-balancer/objects/load-balancers/resource.js'
import { member } from '../../../controller/load-balancer/objects/members/resource.js'
import { pool } from '../../../controller/load-balancer/objects/pools/resource.js'
import {
  type Attributes,
  derived,
  isNullable,
  rendered,
  settable,
} from '../../../controller/load-balancer/schema/attributes.js'
import { readBody } from '../../../controller/load-balancer/schema/input.js'
import { parseListQuery } from '../../../controller/load-balancer/schema/list-query.js'
import {
  columnsOf,
  createSchema,
  defineResource,
  type Resource,
  updateSchema,
} from '../../../controller/load-balancer/schema/resource.js'
import { selectObjects } from '../../../controller/load-balancer/schema/select.js'
import { integer, mapOf, text, uuid } from '../../../controller/load-balancer/schema/values.js'
import { field, node, type ValueOf } from '../../../controller/load-balancer/tree/node.js'
import { createTestDatabase } from '../../support/database/database.js'

const scratch = await createTestDatabase()
t.teardown(() => scratch.drop())
const database = scratch.of('load_balancer')

/** Columns that no request writes by name: the service maintains them. */
const CHILD = ['id', 'load_balancer_id', 'project_id', 'created_at', 'updated_at', 'generation', 'change']
/** The health manager's. */
const OPERATING = ['operating_status', 'operating_reason', 'operating_since']
const KEPT: readonly [resource: Resource, columns: readonly string[]][] = [
  [
    loadBalancer,
    [
      'id',
      'topology',
      'owns_vip_port',
      'vip_vnic_type',
      'additional_vips',
      ...OPERATING,
      'reported_status',
      'impairment',
      'bound_sha256',
      'proof_at',
      'answered_challenges',
      'impairment_reason',
      'unheard_since',
      'created_at',
      'updated_at',
      'generation',
      'change',
      'applied_generation',
      'fault',
      'fault_generation',
      'fault_since',
      'attempts',
      'retry_at',
      'recheck_at',
      'lease_owner',
      'lease_until',
      'fence',
      'host_id',
    ],
  ],
  [listener, [...CHILD, ...OPERATING, 'transport']],
  [pool, [...CHILD, ...OPERATING, 'last_server_number']],
  [member, [...CHILD, ...OPERATING, 'pool_id', 'server_number', 'vnic_type']],
  [healthMonitor, [...CHILD, 'pool_id']],
  [l7Policy, [...CHILD, 'listener_id']],
  [l7Rule, [...CHILD, 'l7_policy_id']],
  [flavor, ['id', 'created_at']],
  [flavorProfile, ['id', 'created_at']],
  [availabilityZone, ['created_at']],
  [availabilityZoneProfile, ['id', 'created_at']],
]

type Column = { name: string; type: string; nullable: boolean; default: unknown }

async function columnsIn(table: string): Promise<Column[]> {
  const columns = await many(
    database,
    sql<Omit<Column, 'default'> & { expression: string | null }>`
      SELECT a.attname AS name, format_type(a.atttypid, a.atttypmod) AS type, NOT a.attnotnull AS nullable,
             pg_get_expr(d.adbin, d.adrelid) AS expression
        FROM pg_attribute a LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
       WHERE a.attrelid = to_regclass(${table}) AND a.attnum > 0 AND NOT a.attisdropped`,
  )
  return Promise.all(
    columns.map(async ({ expression, ...column }) => {
      if (expression === null) return { ...column, default: null }
      const { value } = await one(database, sql<{ value: unknown }>`SELECT to_json(${trusted(expression)}) AS value`)
      return { ...column, default: value }
    }),
  )
}

const storedIn = (attributes: Attributes) =>
  Object.entries(attributes).filter(([, attribute]) => attribute.stored && attribute.sql === '')

t.test('the migrations’ columns match the attributes', async t => {
  for (const [resource, kept] of KEPT) {
    const columns = await columnsIn(resource.table)
    const expected = storedIn(resource.attributes).map(([name, attribute]) => ({
      name,
      type: attribute.type?.column,
      nullable: isNullable(attribute),
      default: attribute.completed ? null : attribute.default,
    }))
    const byName = (a: { name: string }, b: { name: string }) => (a.name < b.name ? -1 : 1)
    t.same(
      columns.filter(({ name }) => !kept.includes(name)).sort(byName),
      expected.filter(({ name }) => !kept.includes(name)).sort(byName),
      resource.table,
    )
    const names = columns.map(({ name }) => name)
    t.same(
      kept.filter(name => !names.includes(name)),
      [],
      `${resource.table} has every column that the service maintains`,
    )
  }
})

/** A new resource, with one option of each kind of column. */
const gadget = defineResource({
  label: 'Gadget',
  singular: 'gadget',
  plural: 'gadgets',
  table: 'gadget',
  source: 'gadget o',
  project: null,
  tagged: false,
  attributes: {
    id: derived('uuid', 'o.id', 'Identifier.'),
    spin_rate: rendered(settable(integer(0, 9), 3, 'How fast it spins.')),
    sticker_text: rendered(settable(text(20), null, 'What stands on it.')),
    wheel_names: rendered(settable(mapOf(text(20)), null, 'What its wheels are called.')),
    owner_id: settable(uuid, null, 'Who owns it.'),
  },
})
const gadgetNode = node(gadget, { id: field('gadget.id', z.string()) })
type GadgetNode = ValueOf<typeof gadgetNode>

const OFF = {
  allow_pagination: true,
  allow_sorting: true,
  allow_filtering: true,
  allow_field_selection: true,
  pagination_max_limit: 100,
}

t.test('one entry carries an attribute from the request to the tree', async t => {
  const columns = storedIn(gadget.attributes).map(([name, { type }]) => `${name} ${type?.column ?? ''}`)
  await database.raw(
    `CREATE TABLE gadget (id uuid PRIMARY KEY, created_at timestamptz DEFAULT now(), ${columns.join(', ')})`,
  )
  const create = createSchema(gadget)
  const insert = async (id: string, body: unknown) => {
    const values = columnsOf(gadget, await readBody(create, body))
    await many(database, sql`INSERT INTO gadget ${insertion([{ id, ...boundColumns(values) }])}`)
  }
  const [first, second] = ['11111111-1111-4111-8111-111111111111', '22222222-2222-4222-8222-222222222222']
  await insert(first, { spin_rate: '7', wheel_names: { left: 'a' } })
  await insert(second, { sticker_text: 'x' })

  await t.test('validation and default', async t => {
    t.same(readBody(create, {}), { spin_rate: 3, sticker_text: null, wheel_names: null, owner_id: null })
    t.throws(() => readBody(create, { spin_rate: 10 }), { message: /spin_rate.*lower or equal to 9/ })
    t.same(readBody(updateSchema(gadget), { spin_rate: null }), { spin_rate: 3 }, 'null resets it')
  })
  await t.test('answers, filters and sort keys', async t => {
    const list = async (queryString: string) => {
      const { filters, sort } = parseListQuery(gadget, queryString, OFF)
      const order = sort.map(key => trusted(`${key.sql} ${key.descending ? 'DESC' : 'ASC'}`))[0]
      const rows = await selectObjects(database, gadget, {
        where: filters[0] ?? sql`TRUE`,
        ...(order === undefined ? {} : { order }),
      })
      return rows.map(({ body }): unknown => JSON.parse(body))
    }
    t.match(await list('spin_rate=7'), [{ id: first, spin_rate: 7, sticker_text: null, wheel_names: { left: 'a' } }])
    t.match(await list('sort=spin_rate:desc'), [{ spin_rate: 7 }, { spin_rate: 3 }])
    t.match(await list('sort=spin_rate'), [{ spin_rate: 3 }, { spin_rate: 7 }])
    t.throws(() => parseListQuery(gadget, 'wheel_names=x', OFF), 'a map cannot be filtered by')
  })
  await t.test('description', async t => {
    const description = 'How fast it spins.'
    t.match(answerSchema(gadget), { properties: { spin_rate: { type: 'integer', description } } })
    t.match(requestSchema(create, gadget, 'create', {}), {
      properties: { spin_rate: { type: ['integer', 'null'], minimum: 0, maximum: 9, default: 3, description } },
    })
  })
  await t.test('tree', async t => {
    const read = async (): Promise<GadgetNode[]> => {
      const rows = await many(
        database,
        sql<{ tree: unknown }>`SELECT ${trusted(gadgetNode.sql)} AS tree FROM gadget ORDER BY id`,
      )
      return rows.map(({ tree }) => gadgetNode.form.parse(tree))
    }
    const [one, other] = await read()
    // The types derive from the entries and hold only rendered attributes.
    const rate: number | undefined = one?.spinRate
    const sticker: string | null | undefined = other?.stickerText
    t.same([rate, sticker], [7, 'x'])
    t.strictSame(one, { spinRate: 7, stickerText: null, wheelNames: { left: 'a' }, id: first })
    await database.raw(`UPDATE gadget SET wheel_names = '{"left": 1}' WHERE id = ?`, [first])
    await t.rejects(read(), { name: 'ZodError' }, 'a value stored in another form fails the read')
  })
})
