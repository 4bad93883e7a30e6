import { createHash } from 'node:crypto'
import type { Schema } from '../schema.js'
import { anchorOf, code, escapeHtml } from './html.js'
import { type Located, type Operation, operationHtml, type Parameter, parameterHtml } from './operation.js'
import { type Components, referenceOf, SchemaWriter } from './schema.js'
import { SCRIPT } from './script.js'
import { STYLE } from './style.js'

type Document = {
  info: { title: string; version: string; description: string }
  tags: { name: string; description: string }[]
  paths: Record<string, Record<string, unknown>>
  components: Components
  /** The shell variable that holds the URL of the API in examples. */
  'x-urlVariable': string
}

const hashOf = (text: string): string => `'sha256-${createHash('sha256').update(text).digest('base64')}'`

/** The page may use its own style and script, and nothing else. */
export const PAGE_POLICY = `default-src 'none'; style-src ${hashOf(STYLE)}; script-src ${hashOf(SCRIPT)}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'`

/** The description as one HTML page, which loads nothing else. Pure. */
export function descriptionPage(given: Readonly<Record<string, unknown>>): string {
  const document = given as unknown as Document
  const { info, tags, paths, components } = document
  const operations = Object.entries(paths).flatMap(([path, item]) => locate(path, item))
  const listed = schemasOfSeveral(operations)
  const writer = new SchemaWriter(components, listed)
  const sections = tags.map(({ name, description }) => {
    const own = operations.filter(({ operation }) => operation.tags[0] === name)
    return section(name, `<p>${escapeHtml(description)}</p>${own.map(each => operationHtml(each, writer)).join('')}`)
  })
  const title = `${escapeHtml(info.title)} <small>${escapeHtml(info.version)}</small>`
  return `<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">
<title>${escapeHtml(`${info.title} ${info.version}`)}</title><style>${STYLE}</style></head><body>
<a class="skip" href="#main">Skip to the operations</a>
<header><h1>${title}</h1><p>${escapeHtml(info.description)} For programs: <a href="openapi.json">openapi.json</a>.</p></header>
<div class="layout">${navigation(tags.map(({ name }) => name))}
<main id="main" tabindex="-1">${beforeTheExamples(document['x-urlVariable'])}${sections.join('')}${appendix(document, listed, writer)}</main></div>
<script>${SCRIPT}</script></body></html>`
}

function locate(path: string, item: Record<string, unknown>): Located[] {
  const shared = Array.isArray(item.parameters) ? item.parameters : []
  return Object.entries(item)
    .filter((entry): entry is [string, Operation] => entry[0] !== 'parameters')
    .map(([method, operation]) => ({ method, path, operation, shared }))
}

/** Names of the schemas that several operations use. */
function schemasOfSeveral(operations: readonly Located[]): Set<string> {
  const uses = operations.flatMap(({ operation }) => [
    ...new Set([...JSON.stringify(operation).matchAll(/#\/components\/schemas\/(\w+)"/g)].map(([, name = '']) => name)),
  ])
  return new Set(uses.filter((name, at) => uses.indexOf(name) !== at))
}

const section = (name: string, inside: string): string =>
  `<section aria-labelledby="${anchorOf(name)}"><h2 id="${anchorOf(name)}">${escapeHtml(name.replaceAll('_', ' '))}</h2>${inside}</section>`

/** The search appears with the script. */
const navigation = (groups: readonly string[]): string =>
  `<nav aria-label="Operations"><search hidden><label for="search">Search</label><input id="search" type="search" placeholder="command or attribute" aria-describedby="found" aria-keyshortcuts="/" autocomplete="off"><span id="found" role="status" class="quiet"></span></search>
<ul><li><a href="#Examples">examples</a>${groups.map(name => `<li><a href="#${anchorOf(name)}">${escapeHtml(name.replaceAll('_', ' '))}</a>`).join('')}<li><a href="#Objects">objects</a><li><a href="#Errors">errors</a></ul></nav>`

const beforeTheExamples = (variable: string): string =>
  section(
    'Examples',
    `<p>The examples are for a shell with these variables. Others, such as <code>$PROJECT_ID</code>, stand for ids: take them from lists, or from the answer when you create an object.</p>
<h3>The account: <code>openrc</code> for a user, <code>admin-openrc</code> for the administrator</h3><pre>source /var/lib/krater/openrc
TOKEN=$(openstack token issue -f value -c id)
${variable}=<span class="root">URL of this page, without /docs</span></pre>`,
  )

/** What several operations share: parameters, objects and errors. */
function appendix({ components }: Document, listed: ReadonlySet<string>, writer: SchemaWriter): string {
  const parameters = Object.values(components.parameters ?? {}).map(parameter =>
    parameterHtml(parameter as unknown as Parameter, writer),
  )
  const objects = [...listed].sort().map(name => {
    const shown = new SchemaWriter(components, new Set([...listed].filter(other => other !== name)))
    return `<h3 id="object-${anchorOf(name)}">${code(name)}</h3>${shown.attributes(components.schemas?.[name])}`
  })
  const errors = Object.entries(components.responses ?? {}).map(([name, response]) => errorHtml(name, response, writer))
  return [
    parameters.length === 0 ? '' : section('Parameters', `<dl>${parameters.join('')}</dl>`),
    section('Objects', objects.join('')),
    section('Errors', `<dl>${errors.join('')}</dl>`),
  ].join('')
}

function errorHtml(name: string, response: Schema, writer: SchemaWriter): string {
  const status = name.replace('error_', '')
  const { description, content } = response as { description: string; content: Record<string, { schema: Schema }> }
  const { schema } = content['application/json'] ?? {}
  const [, form = ''] = referenceOf(Object(schema))
  return `<dt id="error-${status}">${code(status)} <i>${escapeHtml(form.replaceAll('_', ' '))}</i><dd>${escapeHtml(description)}${writer.attributes(schema)}`
}
