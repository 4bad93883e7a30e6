import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { isDeepStrictEqual } from 'node:util'
import fc from 'fast-check'
import t, { type Test } from 'tap'
import { commandsFor } from '../../../amphora-agent/haproxy/leaving.js'
import { planTransition } from '../../../amphora-agent/haproxy/plan-transition.js'
import type { HaproxyPart, TlsPart } from '../../../amphora-agent/protocol/desired.js'
import { badReferencesIn, type CertificateSource } from '../../../controller/certificates/certificate-source.js'
import { RESOURCES } from '../../../controller/load-balancer/description/resources.js'
import { COUNTED_RESOURCES } from '../../../controller/load-balancer/objects/quotas/limits.js'
import type { LoadBalancerTree } from '../../../controller/load-balancer/tree/tree.js'
import { renderDesired } from '../../../controller/provider/amphora/rendering/desired.js'
import { allReferences, readReference } from '../../../x509/material/reference.js'
import { nastyText, nastyToken } from '../../golden/hostile.js'
import { tokenOf } from '../../support/clients/callers.js'
import type { Json } from '../../support/clients/json-answers.js'
import { startTestApi } from '../../support/clients/load-balancer-api.js'
import { keepalivedWords, type Meaning, meaningOf } from '../../support/inputs/haproxy-words.js'
import type { InjectionCase } from '../../support/inputs/injection-case.js'
import { injectionCases } from '../../support/inputs/injection-cases.js'
import { type StringLeaf, stringLeaves } from '../../support/inputs/string-fields.js'
import { asOneFile, checkWithHaproxy, run } from '../../support/services/haproxy.js'
import { factsFor, makeScene, type Way, withPlainIds } from '../../support/worlds/injection-scene.js'

const directory = mkdtempSync(join(tmpdir(), 'krater-injection-'))
t.teardown(() => rmSync(directory, { recursive: true }))

type Scene = Awaited<ReturnType<typeof makeScene>>

const leaves = new Map(stringLeaves().map(leaf => [leaf.name, leaf]))

/**
 * All that an amphora reads for a tree: two configurations, the files of TLS, and the agent's commands on HAProxy's
 * runtime socket.
 */
type Effect = { haproxy: Meaning[][]; tls: TlsPart; keepalived: string[][]; commands: string[] }

type Part = Pick<HaproxyPart, 'text' | 'tls'>

const NO_FILES: TlsPart = { files: [], lists: [] }
const NOTHING: Part = { text: '', tls: { files: [], lists: [] } }

function effectOf(tree: LoadBalancerTree): { effect: Effect; haproxy: Part; keepalived: string } {
  const plain: LoadBalancerTree = { ...withPlainIds(tree), topology: 'ACTIVE_STANDBY' }
  const { haproxy, keepalived } = renderDesired(plain, factsFor(plain))
  const part = haproxy ?? NOTHING
  const effect = {
    haproxy: meaningOf(part.text),
    tls: part.tls ?? NO_FILES,
    keepalived: keepalivedWords(keepalived?.text ?? ''),
    commands: haproxy === null ? [] : commandsOf(haproxy),
  }
  return { effect, haproxy: part, keepalived: keepalived?.text ?? '' }
}

/** The agent's commands that make all servers join and leave again. */
function commandsOf(desired: HaproxyPart): string[] {
  const backends = desired.backends.map(backend => ({ ...backend, servers: [] }))
  const empty: HaproxyPart = { ...desired, backends, sha256: '0'.repeat(64) }
  const facts = { running: true, hasOldWorkers: false, leaving: [], now: 0 }
  const commands = [planTransition(empty, desired, facts), planTransition(desired, empty, facts)].flatMap(plan => [
    ...(plan.kind === 'runtime' ? plan.commands.map(({ text }) => text) : []),
    ...plan.leaving.flatMap(one => Object.values(commandsFor(one))),
  ])
  for (const command of commands) {
    if (!/^[!-~]+( [!-~]+)*$/.test(command) || /[;\\]|<</.test(command))
      throw new Error(`Not a plain command: ${command}`)
  }
  return commands
}

/** Replaces every occurrence of one text in a value. */
function replaced<T>(value: T, from: string, to: string): T {
  return JSON.parse(JSON.stringify(value), (_, inner: unknown) =>
    typeof inner === 'string' ? inner.replaceAll(from, () => to) : inner,
  )
}

/** The first line that differs, with the expected one. */
function difference(found: Effect, expected: Effect): string {
  const lines = ({ haproxy, tls, keepalived, commands }: Effect) =>
    [...haproxy, ...tls.files, ...tls.lists, ...keepalived, ...commands].map(line => JSON.stringify(line))
  const [actual, desired] = [lines(found), lines(expected)]
  const index = actual.findIndex((line, at) => line !== desired[at])
  return `${actual[index]} instead of ${desired[index]}`
}

/** Joins the configurations of trees with plain ids into one file, with distinct ids for each. */
const withIdsOfTheirOwn = (parts: readonly Part[]): Part =>
  asOneFile(
    parts.map((part, index) => replaced(part, '00000000-0000-4000-8000', `${10_000_000 + index}-0000-4000-8000`)),
  )

/** As key managers do, it refuses what names nothing of theirs. */
const CERTIFICATES: CertificateSource = {
  check: async (_, __, requested) =>
    badReferencesIn(
      allReferences(requested).map(ref => ({ ref, wrong: readReference(ref) === null ? 'it names nothing' : null })),
    ),
  close: () => undefined,
}

const waysOf = ({ collection, attribute, onUpdate }: StringLeaf): Way[] => {
  const own: Way[] = collection === 'loadbalancers' ? ['nested'] : ['create']
  const isNested = ['listeners', 'pools', 'members', 'healthmonitors', 'l7policies', 'rules'].includes(collection)
  const fromParent = attribute === 'project_id' || attribute === 'tenant_id'
  return [...own, ...(isNested && !fromParent ? (['nested'] as const) : []), ...(onUpdate ? (['update'] as const) : [])]
}

const [NASTY_TEXT, NASTY_TOKEN, PLAIN_START] = [nastyText(), nastyToken(), fc.stringMatching(/^[a-z0-9.]{1,6}$/)]

const textsFor = ({ frames }: InjectionCase): fc.Arbitrary<string> =>
  fc.oneof(
    NASTY_TEXT,
    fc.tuple(NASTY_TOKEN, fc.constantFrom(...frames)).map(([fragment, frame]) => frame(fragment)),
    fc.tuple(PLAIN_START, NASTY_TOKEN, fc.constantFrom(...frames)).map(([a, b, frame]) => frame(a + b)),
  )

t.test('every free-text attribute has a case', async t => {
  const free = [...leaves.values()].filter(({ kind }) => kind === 'free').map(({ name }) => name)
  t.strictSame([...new Set(injectionCases.map(({ field }) => field))].sort(), free.sort())
})

t.test('any text in a request is refused or changes only its own place', { jobs: 4 }, async t => {
  const api = await startTestApi({
    providers: ['amphora', 'noop_driver'],
    certificates: CERTIFICATES,
    quota: Object.fromEntries(COUNTED_RESOURCES.map(name => [name, -1])),
  })
  t.teardown(api.stop)
  const keepalived = new Set<string>()

  const tryCase = (t: Test, injection: InjectionCase, scenes: Map<string, Scene>) => {
    const { field, about, body, around, harmless, takes, refuses, means, refusals, token } = injection
    const isShown = typeof injection.rendered === 'function' ? injection.rendered : () => injection.rendered
    const mayShow = injection.rendered !== false
    return t.test(`${field} ${about}`, async t => {
      const files = mkdtempSync(join(directory, 'case-'))
      const leaf = leaves.get(field)
      if (leaf === undefined) return
      const alwaysRefused = harmless('') === ''
      const ways = waysOf(leaf)
      const context = fixedContext(leaf, body(harmless('')))
      const sceneFor = async (way: Way): Promise<Scene> => {
        // what a PUT leaves in a configuration may only meet a PUT of the same attributes
        const attributes = Object.keys(body(harmless('')))
        const leavesTraces = way === 'update' && (mayShow || attributes.length > 1)
        const key = JSON.stringify([token, context, around, leavesTraces ? attributes.sort() : 'shared'])
        const scene = scenes.get(key) ?? (await makeScene(api, leaf.collection, context, tokenOf(token), around))
        scenes.set(key, scene)
        return scene
      }
      const send = async (way: Way, text: string) =>
        (await sceneFor(way)).send(way, way === 'update' ? changeable(leaf, body(text)) : body(text))

      const baselines = new Map<string, Effect>()
      const baselineFor = async (way: Way, like: string): Promise<Effect> => {
        const known = baselines.get(way + like)
        if (known !== undefined) return known
        const { reply, tree } = await send(way, like)
        if (tree === null) throw new Error(`${way} ${like}: ${reply.status} ${reply.text}`)
        const { effect } = effectOf(tree)
        if (isShown(like) !== JSON.stringify(effect).includes(JSON.stringify(means(like)).slice(1, -1)))
          throw new Error(`${like} is ${isShown(like) ? 'not ' : ''}rendered`)
        baselines.set(way + like, effect)
        return effect
      }

      /**
       * Sends a text and checks all its effects. @returns the configuration that contains it, null when it was
       * refused
       */
      const look = async (way: Way, text: string): Promise<Part | null> => {
        const { reply, tree } = await send(way, text)
        if (tree === null) {
          if (!refusals.includes(reply.status)) throw new Error(`${way}: ${reply.status} ${reply.text}`)
          return null
        }
        if (alwaysRefused) throw new Error(`${way}: it was accepted`)
        const found = effectOf(tree)
        const like = harmless(text)
        const baseline = await baselineFor(way, like)
        const expected = isShown(like) ? replaced(baseline, means(like), means(text)) : baseline
        if (!isDeepStrictEqual(found.effect, expected)) throw new Error(`${way}: ${difference(found.effect, expected)}`)
        keepalived.add(found.keepalived)
        return found.haproxy
      }

      const configurations: Part[] = []
      const wayFor = (index: number): Way => ways[index % ways.length] ?? 'create'
      for (const [index, text] of takes.entries()) {
        const configuration = await look(wayFor(index), text)
        if (configuration === null) t.fail(`${wayFor(index)} refuses ${JSON.stringify(text)}`)
        else configurations.push(configuration)
      }
      for (const [index, text] of refuses.entries()) {
        if ((await look(wayFor(index), text)) !== null) t.fail(`${wayFor(index)} accepts ${JSON.stringify(text)}`)
      }
      if (configurations.length > 0) {
        const file = withIdsOfTheirOwn(configurations)
        t.same(await checkWithHaproxy(files, file.text, file), { code: 0, complaints: [] })
      }
      const attempt = fc.record({ way: fc.constantFrom(...ways), text: textsFor(injection) })
      await fc.assert(
        fc.asyncProperty(
          fc.array(attempt, { minLength: mayShow ? 6 : 3, maxLength: mayShow ? 6 : 3 }),
          async attempts => {
            const accepted: Part[] = []
            for (const { way, text } of attempts) {
              const configuration = await look(way, text)
              if (configuration !== null) accepted.push(configuration)
            }
            if (accepted.length === 0) return
            const file = withIdsOfTheirOwn(accepted)
            const { code, complaints } = await checkWithHaproxy(files, file.text, file)
            if (code !== 0 || complaints.length > 0) throw new Error(complaints.join('\n'))
          },
        ),
        { numRuns: 1 },
      )
    })
  }
  const collections = [...new Set([...leaves.values()].map(({ collection }) => collection))]
  await Promise.all(
    collections.map(collection =>
      t.test(collection, async t => {
        const scenes = new Map<string, Scene>()
        for (const injection of injectionCases) {
          if (leaves.get(injection.field)?.collection === collection) await tryCase(t, injection, scenes)
        }
      }),
    ),
  )

  await t.test('choices and ids accept only valid values', async () => {
    const scenes = new Map<string, Scene>()
    const closed = [...leaves.values()].filter(({ kind }) => kind !== 'free')
    const attempt = fc
      .constantFrom(...closed)
      .chain(leaf => fc.record({ leaf: fc.constant(leaf), way: fc.constantFrom(...waysOf(leaf)), text: NASTY_TEXT }))
    await fc.assert(
      fc.asyncProperty(attempt, async ({ leaf, way, text }) => {
        const scene = scenes.get(leaf.collection) ?? (await makeScene(api, leaf.collection, {}, tokenOf('admin')))
        scenes.set(leaf.collection, scene)
        const { reply, tree } = await scene.send(way, {
          [leaf.attribute]: JSON.parse(JSON.stringify(leaf.valueWith(text))),
        })
        if (tree === null && reply.status === 400) return
        if (tree === null || text !== 'GET') throw new Error(`${way} ${leaf.name}: ${reply.status} ${reply.text}`)
        effectOf(tree)
      }),
      { numRuns: 80 },
    )
  })

  await t.test('keepalived accepts every configuration', async t => {
    for (const [index, text] of [...keepalived].entries()) {
      const file = join(directory, `keepalived-${index}.conf`)
      writeFileSync(file, text)
      const script = `ip link add eth-a1b2c3d4 type veth peer name other && exec keepalived -t -f ${file}`
      t.same(await run('unshare', ['--net', 'sh', '-c', script]), { code: 0, output: '' }, text)
    }
  })
})

const isFixed = ({ collection }: StringLeaf, name: string): boolean => {
  const attribute = RESOURCES[collection]?.resource.attributes[name]
  return attribute?.input !== 'create-and-update'
}

/** The attributes of an object that an update may change. */
const changeable = (leaf: StringLeaf, attributes: Json): Json =>
  Object.fromEntries(Object.entries(attributes).filter(([name]) => !isFixed(leaf, name)))

/** The attributes that the object needs from its creation for the others to be valid. */
const fixedContext = (leaf: StringLeaf, attributes: Json): Json =>
  Object.fromEntries(Object.entries(attributes).filter(([name]) => isFixed(leaf, name) && name !== leaf.attribute))
