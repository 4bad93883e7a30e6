import fc from 'fast-check'
import { anyText } from './any-text.js'

type Schema = Readonly<Record<string, unknown>>
type Known = Readonly<Record<string, readonly unknown[]>>

/** Text that HTTP can carry: without lone surrogates. */
export const wellFormed = (text: string): string => Buffer.from(text).toString()

/**
 * Asserts that no request makes `attempt` throw, then continues until the route succeeds, so that chance does
 * not decide whether it was really tested.
 */
export async function attemptUntilDone<Request>(
  request: fc.Arbitrary<Request>,
  attempt: (request: Request) => Promise<void>,
  isDone: () => boolean,
  parameters: fc.Parameters<[Request]>,
): Promise<void> {
  await fc.assert(fc.asyncProperty(request, attempt), parameters)
  for (let tries = 0; !isDone() && tries < MAX_FURTHER_ATTEMPTS; tries += 50) {
    for (const further of fc.sample(request, 50)) if (!isDone()) await attempt(further)
  }
}

const MAX_FURTHER_ATTEMPTS = 1000

/** Optional attributes set at once: with all of them, hardly any body gets past the first rule. */
const MAX_OPTIONAL = 2

/**
 * Values that follow a JSON Schema of the API's description, and sometimes something else.
 * @param known good values of attributes, by name, where the schema is too loose
 * @param schemas those that references name
 */
export function arbitraryOf(
  schema: Schema,
  known: Known,
  schemas: Readonly<Record<string, Schema>>,
): fc.Arbitrary<unknown> {
  const of = (inner: unknown): fc.Arbitrary<unknown> => arbitraryOf(Object(inner), known, schemas)
  if (typeof schema.$ref === 'string') return of(schemas[schema.$ref.split('/').at(-1) ?? ''])
  if (Array.isArray(schema.enum)) return fc.constantFrom<unknown>(...schema.enum)
  if (Array.isArray(schema.anyOf) && schema.anyOf.every(choice => choice.format === undefined)) {
    return fc.oneof(...schema.anyOf.map((choice, index) => ({ weight: index === 0 ? 6 : 1, arbitrary: of(choice) })))
  }
  const types: unknown[] = Array.isArray(schema.type) ? schema.type : [schema.type]
  switch (types[0]) {
    case 'null':
      return fc.constant(null)
    case 'integer':
      return fc.integer({
        min: Math.max(Number(schema.minimum ?? 0), -10),
        max: Math.min(Number(schema.maximum ?? 9), 70_000),
      })
    case 'boolean':
      return fc.boolean()
    case 'array':
      // objects in lists make a tree
      return fc.array(of(schema.items), {
        minLength: Object(schema.items).type === 'object' ? 1 : Number(schema.minItems ?? 0),
        maxLength: 3,
      })
    case 'object':
      return schema.properties === undefined ? dictionary() : objectOf(schema, known, schemas)
    case 'string':
      if (schema.format === 'uuid') return fc.uuid()
      if (schema.format === 'cidr')
        return fc.tuple(fc.ipV4(), fc.nat(33)).map(([address, bits]) => `${address}/${bits}`)
      if (Array.isArray(schema.anyOf)) return fc.oneof(fc.ipV4(), fc.ipV6())
      return anyText({ maxLength: 40 })
    default:
      return fc.jsonValue()
  }
}

const dictionary = () =>
  fc.dictionary(anyText({ maxLength: 8 }), fc.oneof(anyText(), fc.jsonValue()), {
    maxKeys: 3,
  })

function objectOf(schema: Schema, known: Known, schemas: Readonly<Record<string, Schema>>): fc.Arbitrary<unknown> {
  const properties = Object.entries(Object(schema.properties) as Record<string, Schema>)
  const fields = Object.fromEntries(
    properties.map(([name, property]) => [
      name,
      fc.oneof(
        { weight: 150, arbitrary: goodValue(name, property, known, schemas) },
        { weight: 1, arbitrary: fc.jsonValue() },
        { weight: 1, arbitrary: fc.constant(null) },
      ),
    ]),
  )
  const isRequired = (name: string) =>
    ALWAYS.includes(name) || (Array.isArray(schema.required) && schema.required.includes(name))
  const required = properties.map(([name]) => name).filter(isRequired)
  // references to parents and nested children, more often than the rest
  const structural = properties.map(([name]) => name).filter(name => !isRequired(name) && STRUCTURE.includes(name))
  const optional = properties.map(([name]) => name).filter(name => !isRequired(name) && !STRUCTURE.includes(name))
  return fc
    .tuple(fc.subarray(structural), fc.subarray(optional, { maxLength: Math.min(MAX_OPTIONAL, optional.length) }))
    .chain(([some, others]) =>
      fc.record(
        Object.fromEntries(
          [...required, ...some, ...others].flatMap(name => (fields[name] ? [[name, fields[name]]] : [])),
        ),
      ),
    )
}

function goodValue(name: string, schema: Schema, known: Known, schemas: Readonly<Record<string, Schema>>) {
  const choices: unknown = schema.enum
  const values = (known[name] ?? []).filter(value => !Array.isArray(choices) || choices.includes(value))
  const isObject = schema.$ref !== undefined
  return values.length === 0 || isObject ? arbitraryOf(schema, known, schemas) : fc.constantFrom(...values)
}

/** Required by other rules. */
const ALWAYS: readonly string[] = ['name', 'vip_subnet_id']

const STRUCTURE: readonly string[] = [
  ...['listeners', 'pools', 'default_pool', 'redirect_pool', 'members', 'healthmonitor', 'l7policies', 'rules'],
  ...['loadbalancer_id', 'listener_id', 'protocol', 'lb_algorithm'],
]
