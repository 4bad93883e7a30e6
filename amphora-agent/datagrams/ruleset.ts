/** The table that holds all of it. */
export const TABLE = 'inet krater_datagrams'

/** A set or map. The kernel adds and removes the elements of a dynamic one itself; they are left alone. */
export type ElementSet = {
  kind: 'set' | 'map'
  /** As nft lists it, with semicolons between the lines. */
  declaration: string
  /** A map's values by key; null for the elements of a set. */
  elements: ReadonlyMap<string, string | null> | 'dynamic' | 'unknown'
}

/** A counter or a timeout. */
export type NamedObject = { kind: 'counter' | 'ct timeout'; body: string }

/** A chain, with its hook if it is a base chain. */
export type Chain<Rules = readonly string[] | 'unknown'> = { hook: string | null; rules: Rules }

/** What the table holds, in nft's words, by name. */
export type Ruleset<Rules = readonly string[] | 'unknown'> = {
  objects: ReadonlyMap<string, NamedObject>
  sets: ReadonlyMap<string, ElementSet>
  chains: ReadonlyMap<string, Chain<Rules>>
}

/** A piece of a ruleset. */
export type Parts = {
  objects: [string, NamedObject][]
  sets: [string, ElementSet][]
  chains: [string, Chain<string[]>][]
}

/** @param hook null: other chains lead there */
export const chain = (name: string, hook: string | null, rules: string[]): Parts['chains'][number] => [
  name,
  { hook, rules },
]

export const EMPTY: Ruleset = { objects: new Map(), sets: new Map(), chains: new Map() }

/** Elements of one command: a netlink message is bounded. */
const ELEMENTS_PER_COMMAND = 500

/** The whole table goes. */
export const REMOVAL = `add table ${TABLE}\ndelete table ${TABLE}\n`

/** An element of this set is in every transaction of ours, so that those who watch the kernel can tell them from others. */
export const SIGNATURES = 'signatures'

/** @param text a transaction after which the table exists */
export const signed = (text: string): string =>
  `${text}flush set ${TABLE} ${SIGNATURES}\nadd element ${TABLE} ${SIGNATURES} { ${Math.ceil(Math.random() * 0xfffffff)} }\n`

/**
 * The input of `nft -f` that leads from one state of the table to another, in one transaction. It has only what differs:
 * counters and what the kernel has learned stay. Pure.
 * @returns an empty text if nothing differs
 */
export function transaction(before: Ruleset, after: Ruleset<readonly string[]>): string {
  const replaced = new Set(
    [...after.sets].filter(([name, set]) => isReplaced(before.sets.get(name), set)).map(([name]) => name),
  )
  const rewritten = [...after.chains].filter(([name, chain]) => {
    const { rules } = before.chains.get(name) ?? { rules: 'unknown' }
    return !isSame(rules, chain.rules) || chain.rules.some(rule => mentions(rule, replaced))
  })
  const gone = <T>(of: (ruleset: Ruleset) => ReadonlyMap<string, T>) =>
    [...of(before)].filter(([name]) => !of(after).has(name))
  const emptied = [...rewritten.filter(([name]) => before.chains.has(name)), ...gone(({ chains }) => chains)]
  const setsBefore = (name: string) => (replaced.has(name) ? undefined : before.sets.get(name))
  const lines = [
    ...emptied.map(([name]) => `flush chain ${TABLE} ${name}`),
    ...[...replaced].map(name => `delete ${before.sets.get(name)!.kind} ${TABLE} ${name}`),
    ...[...after.objects]
      .filter(([name]) => !before.objects.has(name))
      .map(([name, { kind, body }]) => `add ${kind} ${TABLE} ${name} { ${body} }`),
    ...[...after.sets]
      .filter(([name]) => setsBefore(name) === undefined)
      .map(([name, { kind, declaration }]) => `add ${kind} ${TABLE} ${name} { ${declaration}; }`),
    ...rewritten
      .filter(([name]) => !before.chains.has(name))
      .map(([name, { hook }]) => `add chain ${TABLE} ${name}${hook === null ? '' : ` { ${hook}; }`}`),
    ...[...after.sets].flatMap(([name, set]) => elementCommands(name, setsBefore(name), set)),
    ...rewritten.flatMap(([name, { rules }]) => rules.map(rule => `add rule ${TABLE} ${name} ${rule}`)),
    ...gone(({ chains }) => chains).map(([name]) => `delete chain ${TABLE} ${name}`),
    ...gone(({ sets }) => sets).map(([name, { kind }]) => `delete ${kind} ${TABLE} ${name}`),
    ...gone(({ objects }) => objects).map(([name, { kind }]) => `delete ${kind} ${TABLE} ${name}`),
  ]
  return lines.length === 0 ? '' : `add table ${TABLE}\n${lines.map(line => `${line}\n`).join('')}`
}

const isReplaced = (before: ElementSet | undefined, after: ElementSet): boolean =>
  before !== undefined && (before.kind !== after.kind || before.declaration !== after.declaration)

const isSame = (one: readonly string[] | 'unknown', other: readonly string[] | 'unknown'): boolean =>
  one !== 'unknown' && other !== 'unknown' && one.length === other.length && one.every((rule, i) => rule === other[i])

const mentions = (rule: string, names: ReadonlySet<string>): boolean =>
  [...rule.matchAll(/@(\w+)/g)].some(([, name]) => names.has(name ?? ''))

function elementCommands(name: string, before: ElementSet | undefined, set: ElementSet): string[] {
  const { elements: after, declaration, kind } = set
  if (after === 'dynamic' || after === 'unknown') return []
  const known = before?.elements ?? new Map<string, string | null>()
  if (known === 'dynamic' || known === 'unknown') {
    return [`flush ${kind} ${TABLE} ${name}`, ...inPieces('add', name, [...after])]
  }
  const removed = [...known].filter(([key, value]) => after.get(key) !== value || !after.has(key))
  const added = [...after].filter(([key, value]) => known.get(key) !== value || !known.has(key))
  // Taken from an interval that holds it, an element would leave a hole.
  if (removed.length > 0 && declaration.includes('interval'))
    return elementCommands(name, { ...set, elements: 'unknown' }, set)
  return [
    ...inPieces(
      'delete',
      name,
      removed.map(([key]) => [key, null]),
    ),
    ...inPieces('add', name, added),
  ]
}

function inPieces(verb: 'add' | 'delete', name: string, elements: readonly (readonly [string, string | null])[]) {
  const words = elements.map(([key, value]) => (value === null ? key : `${key} : ${value}`))
  return Array.from({ length: Math.ceil(words.length / ELEMENTS_PER_COMMAND) }, (_, piece) => {
    const some = words.slice(piece * ELEMENTS_PER_COMMAND, (piece + 1) * ELEMENTS_PER_COMMAND)
    return `${verb} element ${TABLE} ${name} { ${some.join(', ')} }`
  })
}

/**
 * Reads the output of `nft -s -t list table`: the names are known then, but not what chains and sets hold. Pure.
 * @param text empty if there is no table
 */
export function readListing(text: string): Ruleset {
  const objects = new Map<string, NamedObject>()
  const sets = new Map<string, ElementSet>()
  const chains = new Map<string, Chain>()
  for (const [, kind, name = '', body = ''] of text.matchAll(
    /^\t(counter|ct timeout|set|map|chain) (\S+) \{\n(.*?)^\t\}$/gms,
  )) {
    const lines = body.split('\n').map(line => line.trim())
    if (kind === 'counter' || kind === 'ct timeout') objects.set(name, { kind, body: '' })
    else if (kind === 'chain') chains.set(name, { hook: null, rules: 'unknown' })
    else if (kind === 'set' || kind === 'map') {
      const declaration = lines.filter(line => line !== '' && !line.startsWith('elements')).join('; ')
      const elements = declaration.includes('dynamic') ? 'dynamic' : 'unknown'
      sets.set(name, { kind, declaration, elements })
    }
  }
  return { objects, sets, chains }
}

/** The output of `nft -s list table` without elements that the kernel learned and without signatures. Pure. */
export const withoutLearned = (text: string): string =>
  text.replaceAll(/^\t(?:set|map) (\S+) \{\n(.*?)^\t\}$/gms, (whole, name: string, body: string) =>
    name === SIGNATURES || body.includes('dynamic') ? name : whole,
  )
