import { execFile } from 'node:child_process'
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import Handlebars from 'handlebars'
import t from 'tap'
import ts from 'typescript'

/** Rules for every source file: the checks that a reviewer should not have to make. */

const root = join(import.meta.dirname, '..')
const LONGEST_FILE = 450
const SOURCES = ['amphora-agent', 'controller', 'images/builder', 'scripts', 'templates', 'test', 'x509']
/**
 * In a comment: unfinished work, or a check switched off. Put together from parts, so that this file does not
 * match.
 */
const MARKERS = new RegExp(
  `(//|\\*|\\{\\{!).*(\\b(TO${'DO'}|FIX${'ME'}|XX${'X'})\\b|@ts-(ignore|expect-error|nocheck)|biome-${'ignore'}|(eslint|oxlint)-${'disable'})`,
)

const texts = new Map(SOURCES.flatMap(sourceFiles).map(file => [file, readFileSync(join(root, file), 'utf8')]))
const files = [...texts.keys()]

// one after another, because each can use a whole core
const tools: { name: string; what: string; command: string[] }[] = [
  { name: 'types', what: 'tsc finds no error', command: ['typescript7/bin/tsc', '--noEmit', '-p', '.'] },
  { name: 'format and lint', what: 'biome finds nothing', command: ['.bin/biome', 'check', '--colors=off', '.'] },
  { name: 'lint with types', what: 'oxlint finds nothing', command: ['.bin/oxlint', '--format=unix'] },
  {
    name: 'dead code',
    what: 'knip finds nothing unused',
    command: ['.bin/knip', '--no-progress', '--no-config-hints'],
  },
]

for (const { name, what, command } of tools) {
  t.test(`${name}: ${what}`, { timeout: 240_000 }, async t => {
    const { code, output } = await run(command)
    if (code !== 0) t.comment(output)
    t.equal(code, 0, `node_modules/${command.join(' ')}`)
  })
}

t.test(`no file is longer than ${LONGEST_FILE} lines`, async t => {
  t.ok(files.length > 100, `${files.length} files`)
  const long = files
    .map(file => ({ file, lines: read(file).split('\n').length - 1 }))
    .filter(({ lines }) => lines > LONGEST_FILE)
  t.same(long, [])
})

t.test('no leftover markers and no disabled checks', async t => {
  const found = files.flatMap(file =>
    read(file)
      .split('\n')
      .flatMap((line, index) => (MARKERS.test(line) ? [`${file}:${index + 1}: ${line.trim()}`] : [])),
  )
  t.same(found, [])
  t.match(`  x() // TO${'DO'} later`, MARKERS)
  t.match(`/* biome-${'ignore'} lint: because */`, MARKERS)
  t.notMatch(`const plain = /TO${'DO'}/`, MARKERS)
})

t.test('no any', async t => {
  const found = files.filter(file => file.endsWith('.ts')).flatMap(file => anysIn(file, read(file)))
  t.same(found, [])
  t.same(anysIn('x.ts', 'const a = 1\nlet b: Map<string, any>'), ['x.ts:2'])
})

t.test('SQL is written only with the sql tag and run by the query functions', async t => {
  const product = files.filter(file => /^controller\/.*\.ts$/.test(file) && !/\/database\/|\/migrations/.test(file))
  t.same(
    product.flatMap(file => otherSqlIn(file, read(file))),
    [],
  )
  for (const text of [
    `database('pool').where({ id })`,
    `trx<Pool>('pool')`,
    `trx.raw('SELECT 1')`,
    'query.whereRaw(`a = ?`, [a])',
    'const found = rows as Pool[]',
    'many(trx, sql`SELECT * FROM pool`)',
  ]) {
    t.equal(otherSqlIn('x.ts', text).length, 1, text)
  }
})

t.test('templates use only output, conditions and loops', async t => {
  const templates = files.filter(file => file.endsWith('.hbs'))
  t.ok(templates.length >= 2)
  t.same(
    templates.flatMap(file => templateFaults(read(file)).map(fault => `${file}: ${fault}`)),
    [],
  )
})

t.test('the template check finds forbidden constructs', async t => {
  t.same(templateFaults('{{a}}{{#if b}}{{c.d}}{{else}}x{{/if}}{{#each e}}{{this}}{{@root.f}}{{/each}}'), [])
  for (const source of [
    '{{{a}}}',
    '{{&a}}',
    '{{lookup a b}}',
    '{{#with a}}{{/with}}',
    '{{> a}}',
    '{{#if (a b)}}{{/if}}',
    '{{#if a}}{{{b}}}{{/if}}',
  ]) {
    t.equal(templateFaults(source).length, 1, source)
  }
})

t.test('a template block at the start of a line stands alone, so directives cannot join', async t => {
  const joined = files
    .filter(file => file.endsWith('.hbs'))
    .flatMap(file =>
      read(file)
        .split('\n')
        .filter(line => /^\{\{([#/]|else)/.test(line) && !/^\{\{[^{}]*\}\}$/.test(line)),
    )
  t.same(joined, [])
})

function sourceFiles(folder: string): string[] {
  if (!existsSync(join(root, folder))) return []
  return readdirSync(join(root, folder), { withFileTypes: true }).flatMap(entry => {
    const path = `${folder}/${entry.name}`
    if (entry.isDirectory()) return entry.name === 'node_modules' ? [] : sourceFiles(path)
    return /\.(ts|js|hbs)$/.test(entry.name) ? [path] : []
  })
}

function read(file: string): string {
  return texts.get(file) ?? ''
}

function run([name = '', ...args]: string[]): Promise<{ code: number; output: string }> {
  return new Promise(resolve => {
    const program = join(root, 'node_modules', name)
    execFile(program, args, { cwd: root, timeout: 240_000, maxBuffer: 64 * 1024 * 1024 }, (error, stdout, stderr) => {
      const code = error === null ? 0 : typeof error.code === 'number' ? error.code : -1
      resolve({ code, output: `${stdout}${stderr}`.slice(0, 20_000) })
    })
  })
}

function anysIn(file: string, text: string): string[] {
  const source = ts.createSourceFile(file, text, ts.ScriptTarget.Latest)
  const found: string[] = []
  const visit = (node: ts.Node): void => {
    if (node.kind === ts.SyntaxKind.AnyKeyword) {
      found.push(`${file}:${source.getLineAndCharacterOfPosition(node.getStart(source)).line + 1}`)
    }
    ts.forEachChild(node, visit)
  }
  visit(source)
  return found
}

/** Database handles; calling one starts knex's query builder. */
const HANDLES: ReadonlySet<string> = new Set(['database', 'trx', 'knex', 'administrator'])
const BUILDER_VERBS: ReadonlySet<string> = new Set(['raw', 'whereRaw', 'pluck', 'modify'])

/**
 * The query builder, raw text, casts of results, and every column of a table, because a migration may add
 * columns.
 */
function otherSqlIn(file: string, text: string): string[] {
  const source = ts.createSourceFile(file, text, ts.ScriptTarget.Latest)
  const found: string[] = []
  const visit = (node: ts.Node): void => {
    if (isOtherSql(node)) found.push(`${file}:${source.getLineAndCharacterOfPosition(node.getStart(source)).line + 1}`)
    ts.forEachChild(node, visit)
  }
  visit(source)
  return found
}

function isOtherSql(node: ts.Node): boolean {
  if (ts.isCallExpression(node)) {
    const { expression: callee } = node
    if (ts.isIdentifier(callee)) return HANDLES.has(callee.text)
    return ts.isPropertyAccessExpression(callee) && BUILDER_VERBS.has(callee.name.text)
  }
  if (ts.isAsExpression(node)) return ts.isIdentifier(node.expression) && node.expression.text === 'rows'
  if (ts.isTaggedTemplateExpression(node)) {
    const { template } = node
    const written = ts.isNoSubstitutionTemplateLiteral(template) ? template.text : template.head.text
    return /^\s*SELECT \* FROM/.test(written) || /RETURNING \*/.test(written)
  }
  return false
}

/** Raw output, helpers other than if and each, partials: what the writer of configuration text does not handle. */
function templateFaults(source: string): string[] {
  const faults: string[] = []
  const plainPath = (path: hbs.AST.Node) => path.type === 'PathExpression'
  const visit = (program: hbs.AST.Program | undefined): void => {
    for (const statement of program?.body ?? []) {
      if (isMustache(statement)) {
        if (!statement.escaped) faults.push(`raw output in line ${statement.loc.start.line}`)
        else if (statement.params.length > 0 || statement.hash !== undefined) {
          faults.push(`a helper in line ${statement.loc.start.line}`)
        }
      } else if (isBlock(statement)) {
        const [subject, ...more] = statement.params
        const known = ['if', 'each'].includes((statement.path as hbs.AST.PathExpression).original)
        if (!known || subject === undefined || more.length > 0 || !plainPath(subject)) {
          faults.push(`a block other than if and each in line ${statement.loc.start.line}`)
        }
        visit(statement.program)
        visit(statement.inverse)
      } else if (statement.type !== 'ContentStatement' && statement.type !== 'CommentStatement') {
        faults.push(`${statement.type} in line ${statement.loc.start.line}`)
      }
    }
  }
  visit(Handlebars.parse(source))
  return faults
}

const isMustache = (node: hbs.AST.Statement): node is hbs.AST.MustacheStatement => node.type === 'MustacheStatement'
const isBlock = (node: hbs.AST.Statement): node is hbs.AST.BlockStatement => node.type === 'BlockStatement'
