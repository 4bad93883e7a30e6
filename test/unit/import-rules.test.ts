import { readdirSync, readFileSync } from 'node:fs'
import { dirname, join, normalize } from 'node:path'
import t from 'tap'
import ts from 'typescript'

/** Checks the import rules of docs/architecture.md against the import statements of every source file. */

const root = join(import.meta.dirname, '../..')
const FOLDERS = ['controller', 'amphora-agent', 'images/builder', 'x509', 'test']

type Import = {
  from: string
  /** A path below the root for our own files, else the package's or built-in module's name. */
  to: string
}

type Rule = { name: string; forbids: (found: Import) => boolean }

const inside = (folder: string) => (path: string) => path.startsWith(`${folder}/`)
const isOurs = (path: string) => FOLDERS.some(folder => inside(folder)(path))

/** What a pure module must not import: files, sockets, processes, databases, threads, timers. */
const IMPURE =
  /^(node:)?(fs|net|tls|dns|dgram|http|https|http2|child_process|worker_threads|cluster|os|timers|inspector|repl)(\/|$)|^(knex|pg|ssh2|koa|dgram-as-promised)$/

/**
 * Decisions and texts: the rendering (except the file that reads the templates), every plan, the protocol and
 * the seccomp filters.
 */
const isPure = (path: string) =>
  (inside('controller/provider/amphora/rendering')(path) && !path.endsWith('/templates.ts')) ||
  /\/plan(-[a-z-]+)?\.ts$/.test(path) ||
  inside('controller/provider/amphora/plan')(path) ||
  inside('amphora-agent/protocol')(path) ||
  inside('amphora-agent/seccomp')(path)

/** Programs behind the key manager's API, which share its folder and its settings. */
const isBehindKeyManager = (path: string) =>
  /^controller\/key-manager\/((orders\/worker|renewals\/worker|housekeeping|keystone-listener|acme-server\/(validation|probe))\/|certificate-authorities\/certificate-order\.)/.test(
    path,
  )

const isApi = (path: string) =>
  /^controller\/(identity|network|load-balancer|key-manager)\//.test(path) && !isBehindKeyManager(path)

/** The public file of a folder, which other folders may import; all other files are internal. */
const PUBLIC_FILES: Readonly<Record<string, RegExp>> = {
  'controller/provider': /^provider\.ts$/,
  'controller/compute': /^driver\.ts$/,
  'controller/network': /^driver\.ts$/,
  'controller/certificates': /^certificate-source\.ts$/,
  // No public file: other services use HTTP.
  'controller/key-manager': /^(?!)/,
}

const rules: Rule[] = [
  {
    name: 'the protocol imports none of our code',
    forbids: ({ from, to }) =>
      inside('amphora-agent/protocol')(from) && isOurs(to) && !inside('amphora-agent/protocol')(to),
  },
  {
    name: 'x509 imports none of our other code',
    forbids: ({ from, to }) => inside('x509')(from) && isOurs(to) && !inside('x509')(to),
  },
  {
    name: 'the agent never imports the controller',
    forbids: ({ from, to }) => inside('amphora-agent')(from) && inside('controller')(to),
  },
  {
    name: 'of the agent, the controller imports only the protocol, the seccomp filters and the key channel',
    forbids: ({ from, to }) =>
      inside('controller')(from) &&
      inside('amphora-agent')(to) &&
      !inside('amphora-agent/protocol')(to) &&
      !inside('amphora-agent/key-channel')(to) &&
      !inside('amphora-agent/seccomp')(to),
  },
  {
    name: 'the API never imports internals of a provider or driver',
    forbids: ({ from, to }) =>
      isApi(from) &&
      Object.entries(PUBLIC_FILES).some(
        ([folder, publicFile]) =>
          inside(folder)(to) && !inside(folder)(from) && !publicFile.test(to.slice(folder.length + 1)),
      ),
  },
  {
    name: 'the API does not know the programs that work behind it',
    forbids: ({ from, to }) =>
      isApi(from) &&
      (/^controller\/(worker|health-manager|housekeeping)\//.test(to) ||
        // All settings of the key manager are one group.
        (isBehindKeyManager(to) && !to.endsWith('/options.ts'))),
  },
  {
    name: 'rendering, planning, the protocol and the seccomp filters are pure',
    forbids: ({ from, to }) => isPure(from) && (IMPURE.test(to) || inside('controller/database')(to)),
  },
  {
    name: 'certificates are looked up over HTTP only',
    forbids: ({ from, to }) => inside('controller/certificates')(from) && inside('controller/key-manager')(to),
  },
  {
    name: 'only main.ts imports cli',
    forbids: ({ from, to }) =>
      !inside('test')(from) &&
      inside('controller/cli')(to) &&
      !inside('controller/cli')(from) &&
      from !== 'controller/main.ts',
  },
  {
    name: 'no folder of the controller imports a higher one',
    forbids: ({ from, to }) => {
      const [lower, higher] = [layerOf(from), layerOf(to)]
      return lower !== null && higher !== null && higher > lower
    },
  },
  {
    name: 'no layer of the load balancer service imports a higher one',
    forbids: ({ from, to }) => {
      const [lower, higher] = [loadBalancerLayerOf(from), loadBalancerLayerOf(to)]
      return lower !== null && higher !== null && higher > lower
    },
  },
  {
    name: 'of a service, the configuration knows only the options',
    forbids: ({ from, to }) =>
      inside('controller/config')(from) &&
      inside('controller')(to) &&
      !inside('controller/config')(to) &&
      !inside('controller/options')(to) &&
      !to.endsWith('/options.ts'),
  },
  {
    name: 'nothing imports the tests',
    forbids: ({ from, to }) => inside('test')(to) && !inside('test')(from),
  },
  {
    name: 'built-in modules are named node:',
    forbids: ({ to }) =>
      /^(fs|net|path|os|crypto|child_process|http|https|stream|events|util|url|timers|dgram|tls|dns)(\/|$)/.test(to),
  },
]

/** The layers of the controller, from bottom to top: a folder imports only from earlier ones. */
const LAYERS = [
  'log',
  'process',
  'checks',
  'options',
  'database',
  'http',
  'inspection',
  'key-channel',
  'api',
  'queue',
  'identity',
  'ovsdb',
  'ovn',
  'network',
  'certificates',
  'compute',
  'load-balancer',
  'hosts',
  'bindings',
  'key-manager',
  'health-manager',
  'provider',
  'worker',
  'housekeeping',
  'config',
  'cli',
]

/** The layers of the load balancer service, in the same order. */
const LOAD_BALANCER_LAYERS = [
  'options.ts',
  'migrations',
  'schema',
  'objects',
  'tree',
  'description',
  'change',
  'api',
  'api.ts',
]

/** A folder with more files is too large to read at a glance. Folders of migrations are exempt. */
const MAX_FILES = 15

const files = FOLDERS.flatMap(sourceFiles)
const imports = files.flatMap(file => importsOf(file, readFileSync(join(root, file), 'utf8')))

t.test('the test reads every source file and its imports', async t => {
  t.ok(files.length > 60, `${files.length} files`)
  t.ok(imports.length > files.length, `${imports.length} imports`)
  t.ok(
    imports.some(({ from, to }) => from === 'controller/network/driver.ts' && to === 'controller/identity/caller.ts'),
  )
})

for (const { name, forbids } of rules) {
  t.test(name, async t => {
    t.same(
      imports.filter(forbids).map(({ from, to }) => `${from} imports ${to}`),
      [],
    )
  })
}

t.test('every folder of the controller has a layer, and every layer a folder', async t => {
  const folders = new Set(files.flatMap(file => /^controller\/([^/]+)\//.exec(file)?.[1] ?? []))
  t.same([...folders].sort(), [...LAYERS].sort())
})

t.test('no folder has an import cycle among its files and subfolders, types included', async t => {
  const product = imports.filter(({ from }) => !inside('test')(from))
  t.same(cycles(product), [])
})

t.test(`no folder of the product has more than ${MAX_FILES} files`, async t => {
  const sizes = new Map<string, number>()
  for (const file of files) sizes.set(dirname(file), (sizes.get(dirname(file)) ?? 0) + 1)
  const large = [...sizes].filter(([folder, size]) => size > MAX_FILES && !/^test\/|\/migrations$/.test(folder))
  t.same(large, [])
})

t.test('each rule finds its violation and accepts what is allowed', async t => {
  const violations: [rule: string, from: string, statement: string][] = [
    ['the protocol imports none of our code', 'amphora-agent/protocol/x.ts', `import { a } from '../haproxy/y.js'`],
    ['x509 imports none of our other code', 'x509/x.ts', `import { a } from '../controller/log/log.js'`],
    ['the agent never imports the controller', 'amphora-agent/x.ts', `import type { A } from '../controller/y.js'`],
    [
      'of the agent, the controller imports only the protocol, the seccomp filters and the key channel',
      'controller/x/y.ts',
      `export * from '../../amphora-agent/z.js'`,
    ],
    [
      'the API never imports internals of a provider or driver',
      'controller/load-balancer/objects/pools/x.ts',
      `import '../../../network/local/driver.js'`,
    ],
    [
      'the API never imports internals of a provider or driver',
      'controller/network/x.ts',
      `import '../compute/noop/driver.js'`,
    ],
    [
      'the API never imports internals of a provider or driver',
      'controller/identity/x.ts',
      `import '../key-manager/api.js'`,
    ],
    [
      'the API never imports internals of a provider or driver',
      'controller/load-balancer/x.ts',
      `import '../certificates/barbican/certificate-source.js'`,
    ],
    ['the API does not know the programs that work behind it', 'controller/identity/x.ts', `import '../worker/y.js'`],
    [
      'the API does not know the programs that work behind it',
      'controller/key-manager/api/orders.ts',
      `import '../orders/worker/y.js'`,
    ],
    [
      'rendering, planning, the protocol and the seccomp filters are pure',
      'controller/provider/amphora/rendering/x.ts',
      `const a = await import('node:fs/promises')`,
    ],
    [
      'rendering, planning, the protocol and the seccomp filters are pure',
      'controller/provider/amphora/plan/plan.ts',
      `import knex from 'knex'`,
    ],
    [
      'rendering, planning, the protocol and the seccomp filters are pure',
      'amphora-agent/network/plan-interfaces.ts',
      `import type { Socket } from 'node:net'`,
    ],
    [
      'certificates are looked up over HTTP only',
      'controller/certificates/barbican/x.ts',
      `import '../../key-manager/faults.js'`,
    ],
    ['only main.ts imports cli', 'controller/worker/x.ts', `import { a } from '../cli/y.js'`],
    [
      'no folder of the controller imports a higher one',
      'controller/database/x.ts',
      `import type { A } from '../network/y.js'`,
    ],
    [
      'no layer of the load balancer service imports a higher one',
      'controller/load-balancer/change/x.ts',
      `import type { A } from '../api/y.js'`,
    ],
    [
      'of a service, the configuration knows only the options',
      'controller/config/x.ts',
      `import { A } from '../network/api.js'`,
    ],
    ['nothing imports the tests', 'controller/x/y.ts', `import { a } from '../../test/support/database/database.js'`],
    ['built-in modules are named node:', 'controller/x/y.ts', `import fs from 'fs'`],
  ]
  for (const [name, from, statement] of violations) {
    const [found] = importsOf(from, statement)
    const broken = rules.filter(({ forbids }) => found !== undefined && forbids(found)).map(rule => rule.name)
    t.ok(broken.includes(name), `${from}: ${statement}`)
  }
  t.same(
    [...new Set(violations.map(([name]) => name))].sort(),
    rules.map(({ name }) => name).sort(),
    'every rule has a violation',
  )

  const allowed: [from: string, statement: string][] = [
    ['controller/load-balancer/api.ts', `import type { NetworkDriver } from '../network/driver.js'`],
    ['controller/worker/x.ts', `import type { Provider } from '../provider/provider.js'`],
    ['controller/load-balancer/x.ts', `import type { CertificateSource } from '../certificates/certificate-source.js'`],
    ['controller/network/api.ts', `import { a } from './local/driver.js'`],
    ['controller/main.ts', `import { a } from './cli/program.js'`],
    ['controller/provider/amphora/rendering/templates.ts', `import { readFileSync } from 'node:fs'`],
  ]
  for (const [from, statement] of allowed) {
    t.notOk(
      rules.some(({ forbids }) => importsOf(from, statement).some(forbids)),
      `${from}: ${statement}`,
    )
  }
})

t.test('the search finds cycles of files, of folders and of both', async t => {
  const found = (...lines: [from: string, to: string][]) => cycles(lines.map(([from, to]) => ({ from, to })))
  t.same(found(['a/b/x.ts', 'a/c/x.ts'], ['a/c/y.ts', 'a/d.ts'], ['a/d.ts', 'a/b/y.ts'], ['a/e/x.ts', 'a/b/x.ts']), [
    { folder: 'a', cycle: 'b, c, d.ts' },
  ])
  t.same(found(['a/b/x.ts', 'a/b/y.ts'], ['a/b/y.ts', 'a/b/x.ts']), [{ folder: 'a/b', cycle: 'x.ts, y.ts' }])
  t.same(found(['a/b/x.ts', 'a/b/y.ts'], ['a/b/y.ts', 'a/c.ts'], ['a/b/x.ts', 'node:fs']), [])
  t.same(
    importsOf('a/x.ts', `import type { A } from './y.js'; export * from './z.js'; type B = import('./b.js').B`),
    ['a/y.ts', 'a/z.ts', 'a/b.ts'].map(to => ({ from: 'a/x.ts', to })),
  )
})

/** Null for files without a layer: main.ts and everything outside the controller. */
function layerOf(path: string): number | null {
  const layer = LAYERS.indexOf(/^controller\/([^/]+)\//.exec(path)?.[1] ?? '')
  return layer === -1 ? null : layer
}

function loadBalancerLayerOf(path: string): number | null {
  const layer = LOAD_BALANCER_LAYERS.indexOf(/^controller\/load-balancer\/([^/]+)/.exec(path)?.[1] ?? '')
  return layer === -1 ? null : layer
}

function sourceFiles(folder: string): string[] {
  return readdirSync(join(root, folder), { withFileTypes: true }).flatMap(entry => {
    const path = `${folder}/${entry.name}`
    if (entry.isDirectory()) return entry.name === 'node_modules' ? [] : sourceFiles(path)
    return entry.name.endsWith('.ts') ? [path] : []
  })
}

/** What a file imports, types and `import()` included, as TypeScript's preprocessor reads it. */
function importsOf(file: string, text: string): Import[] {
  return ts.preProcessFile(text, true, true).importedFiles.map(({ fileName: name }) => ({
    from: file,
    to: name.startsWith('.') ? normalize(join(dirname(file), name)).replace(/\.js$/, '.ts') : name,
  }))
}

type Cycle = { folder: string; cycle: string }

/**
 * Finds cycles among the files and subfolders of each folder; imports of nested files count for their subfolder.
 * @returns the cycles, by folder
 */
function cycles(all: readonly Import[]): Cycle[] {
  const folders = new Map<string, Map<string, Set<string>>>()
  for (const { from, to } of all) {
    const [source, target] = [from.split('/'), to.split('/')]
    const depth = source.findIndex((name, at) => name !== target[at])
    const [importer, imported] = [source[depth], target[depth]]
    if (depth < 1 || importer === undefined || imported === undefined) continue
    const folder = source.slice(0, depth).join('/')
    const edges = folders.get(folder) ?? new Map<string, Set<string>>()
    folders.set(folder, edges.set(importer, (edges.get(importer) ?? new Set()).add(imported)))
  }
  return [...folders]
    .flatMap(([folder, edges]) => cyclesOf(edges).map(cycle => ({ folder, cycle })))
    .sort((one, other) => one.folder.localeCompare(other.folder))
}

/** Groups of nodes that reach each other, as sorted lists of names. */
function cyclesOf(edges: ReadonlyMap<string, ReadonlySet<string>>): string[] {
  const reachable = (start: string) => {
    const seen = new Set<string>()
    const queue = [start]
    for (let at = queue.pop(); at !== undefined; at = queue.pop()) {
      for (const next of edges.get(at) ?? []) {
        if (!seen.has(next)) queue.push(next)
        seen.add(next)
      }
    }
    return seen
  }
  const reached = new Map([...edges.keys()].map(node => [node, reachable(node)]))
  const groups = [...reached].map(([node, targets]) =>
    [...targets]
      .filter(target => reached.get(target)?.has(node))
      .sort()
      .join(', '),
  )
  return [...new Set(groups)].filter(group => group !== '').sort()
}
