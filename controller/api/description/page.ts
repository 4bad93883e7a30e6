import { createHash } from 'node:crypto'
import type { Schema } from '../schema.js'

type Json = Readonly<Record<string, unknown>>

const STYLE = `
body{font:16px/1.5 system-ui,sans-serif;margin:0 auto;max-width:70rem;padding:1rem;color:#1b1f24;background:#fff}
nav a{margin-right:1rem}h2{margin-top:3rem;border-bottom:1px solid #d0d7de}
details{border:1px solid #d0d7de;border-radius:6px;margin:.5rem 0;padding:.5rem .75rem}
summary{cursor:pointer}summary b{display:inline-block;min-width:4.5rem}code{font:14px/1.4 ui-monospace,monospace}
table{border-collapse:collapse;width:100%;margin:.5rem 0}th,td{text-align:left;vertical-align:top;padding:.25rem .75rem .25rem 0;border-top:1px solid #eaeef2}
td p{margin:0}.quiet{color:#57606a}
@media(prefers-color-scheme:dark){body{color:#e6edf3;background:#0d1117}a{color:#79c0ff}details,h2,th,td{border-color:#30363d}.quiet{color:#9198a1}}
`

/** The page may load its own style and nothing else. */
export const PAGE_POLICY = `default-src 'none'; style-src 'sha256-${createHash('sha256').update(STYLE).digest('base64')}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'`

/** The description as one HTML page without scripts. Pure. */
export function descriptionPage(document: Json): string {
  const { info, tags, paths, components } = document as {
    info: { title: string; version: string; description: string }
    tags: { name: string; description: string }[]
    paths: Record<string, Record<string, unknown>>
    components: Components
  }
  const sections = tags.map(({ name, description }) => {
    const operations = Object.entries(paths).flatMap(([path, item]) =>
      Object.entries(item)
        .filter((entry): entry is [string, Operation] => entry[0] !== 'parameters')
        .filter(([, operation]) => operation.tags[0] === name)
        .map(([method, operation]) => operationHtml(method, path, operation, item.parameters, components)),
    )
    return `<h2 id="${escapeHtml(name)}">${escapeHtml(name)}</h2><p>${escapeHtml(description)}</p>${operations.join('')}`
  })
  const links = tags.map(({ name }) => `<a href="#${escapeHtml(name)}">${escapeHtml(name)}</a>`).join(' ')
  return `<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>${escapeHtml(info.title)} ${escapeHtml(info.version)}</title><style>${STYLE}</style></head><body>
<h1>${escapeHtml(info.title)} ${escapeHtml(info.version)}</h1><p>${escapeHtml(info.description)}</p>
<p>Send a token of the identity service as <code>X-Auth-Token</code>. For programs: <a href="openapi.json">openapi.json</a>.</p>
<nav>${links}</nav>${sections.join('')}</body></html>`
}

type Components = {
  schemas: Record<string, Schema>
  parameters: Record<string, Parameter>
  responses: Record<string, Json>
}
type Parameter = { name: string; in: string; description: string; required?: boolean; schema: Schema }
type Operation = {
  tags: string[]
  summary: string
  description: string
  parameters?: Json[]
  requestBody?: { content: { 'application/json': { schema: Schema } } }
  responses: Record<string, Json>
}

function operationHtml(
  method: string,
  path: string,
  operation: Operation,
  shared: unknown,
  components: Components,
): string {
  const parameters = [...(Array.isArray(shared) ? shared : []), ...(operation.parameters ?? [])].map(
    parameter => resolve(parameter, components) as Parameter,
  )
  const body = operation.requestBody?.content['application/json'].schema
  const answers = Object.entries(operation.responses).map(([status, answer]) => {
    const { description, content } = resolve(answer, components) as { description: string; content?: Json }
    const schema = Number(status) < 400 ? Object(content?.['application/json']).schema : undefined
    return `<tr><td><code>${escapeHtml(status)}</code></td><td>${escapeHtml(description)}${schema === undefined ? '' : schemaHtml(schema, components)}</td></tr>`
  })
  return `<details><summary><b><code>${method.toUpperCase()}</code></b><code>${escapeHtml(path)}</code> <span class="quiet">${escapeHtml(operation.summary)}</span></summary>
<p>${escapeHtml(operation.description)}</p>
${parameters.length === 0 ? '' : `<h4>Parameters</h4>${table(parameters.map(parameterRow))}`}
${body === undefined ? '' : `<h4>Body</h4>${schemaHtml(body, components)}`}
<h4>Answers</h4><table>${answers.join('')}</table></details>`
}

const table = (rows: readonly string[]): string => `<table>${rows.join('')}</table>`

const parameterRow = ({ name, in: place, description, required, schema }: Parameter): string =>
  `<tr><td><code>${escapeHtml(name)}</code></td><td>${escapeHtml(place)}${required === true ? ', required' : ''}</td><td>${escapeHtml(typeOf(schema))}</td><td>${escapeHtml(description)}</td></tr>`

/** The attributes of an object; those of nested objects are folded. */
function schemaHtml(given: unknown, components: Components): string {
  const schema = resolve(given, components)
  const alternatives = Array.isArray(schema.anyOf) ? schema.anyOf.map(choice => resolve(choice, components)) : []
  const inner = [schema, ...alternatives].find(form => form.properties !== undefined || form.items !== undefined)
  if (inner === undefined) return ''
  if (inner.items !== undefined) return schemaHtml(inner.items, components)
  const required = Array.isArray(inner.required) ? inner.required : []
  const rows = Object.entries(inner.properties as Record<string, unknown>).map(([name, property]) => {
    const form = resolve(property, components)
    const inside = schemaHtml(form, components)
    const more = inside === '' ? '' : `<details><summary>inside</summary>${inside}</details>`
    return `<tr><td><code>${escapeHtml(name)}</code></td><td>${required.includes(name) ? 'required' : ''}</td><td>${escapeHtml(typeOf(form))}</td><td><p>${escapeHtml(String(form.description ?? ''))}</p>${more}</td></tr>`
  })
  return table(rows)
}

/** `integer 1..65535, default 1`. */
function typeOf(schema: Schema): string {
  const choices = Array.isArray(schema.enum) ? schema.enum.map(String).join(' | ') : undefined
  const type = Array.isArray(schema.type) ? schema.type.join(' or ') : String(schema.type ?? 'any of several')
  const number =
    schema.minimum !== undefined || schema.maximum !== undefined
      ? `${schema.minimum ?? ''}..${schema.maximum ?? ''}`
      : ''
  const length = schema.maxLength === undefined ? '' : `up to ${schema.maxLength} characters`
  const fallback = schema.default === undefined ? '' : `default ${JSON.stringify(schema.default)}`
  return [choices ?? type, schema.format, number, length, fallback]
    .filter(part => part !== undefined && part !== '')
    .join(', ')
}

function resolve(value: unknown, components: Components): Schema {
  const schema: Schema = Object(value)
  const [, kind, name] = /^#\/components\/(\w+)\/(.+)$/.exec(String(schema.$ref ?? '')) ?? []
  if (kind === undefined || name === undefined) return schema
  return Object(Object(components[kind as keyof Components])[name])
}

const ESCAPES: Readonly<Record<string, string>> = {
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  '"': '&quot;',
  "'": '&#39;',
}

const escapeHtml = (text: string): string => text.replace(/[&<>"']/g, character => ESCAPES[character] ?? '')
