import * as z from 'zod'
import { type Answer, jsonAnswer, NO_CONTENT } from '../../api/answer.js'
import { objectOf } from '../../api/schema.js'
import type { Database } from '../../database/connection.js'
import { execute } from '../../database/query.js'
import { sql } from '../../database/sql.js'
import { inTransaction } from '../../database/transaction.js'
import { badRequest, forbidden, notFound } from '../../http/errors.js'
import { type IdentityCall, type IdentityRoute, route, type Service, selfUrl } from '../dialect.js'
import { parse } from '../json.js'
import { administrators, readersAndProject } from '../policy.js'
import { findRow } from './collection.js'
import * as fields from './fields.js'
import { projects } from './projects.js'

const all = '/v3/projects/:id/tags'
const one = `${all}/:tag`
const group = 'projects'
const request = z.object({ tags: fields.tags })
const answer = objectOf({ tags: { type: 'array', items: { type: 'string' } }, links: { type: 'object' } })

/** The tags of a project, all together or one by one. */
export const projectTagRoutes: readonly IdentityRoute[] = [
  route({
    ...{ method: 'GET', path: all, right: readersAndProject, group, status: 200 },
    summary: 'List the tags of a project',
    answer,
    handle: async ({ database }, call) => presentTags(call, await tagsOf(database, call)),
  }),
  route({
    ...{ method: 'PUT', path: all, right: administrators, group, status: 200 },
    summary: 'Replace the tags of a project',
    request,
    answer,
    handle: async ({ database }, call) => {
      const { tags } = await call.body()
      return presentTags(call, await retag(database, call, () => tags))
    },
  }),
  route({
    ...{ method: 'DELETE', path: all, right: administrators, group, status: 204 },
    summary: 'Remove all tags of a project',
    handle: async ({ database }, call) => {
      await retag(database, call, () => [])
      return NO_CONTENT
    },
  }),
  route({
    ...{ method: 'GET', path: one, right: readersAndProject, group, status: 204 },
    summary: 'Check whether a project has a tag',
    handle: async ({ database }, call) => {
      requireTag(await tagsOf(database, call), call.params.tag!)
      return NO_CONTENT
    },
  }),
  route({
    ...{ method: 'PUT', path: one, right: administrators, group, status: 201 },
    summary: 'Add a tag to a project',
    handle: addTag,
  }),
  route({
    ...{ method: 'DELETE', path: one, right: administrators, group, status: 204 },
    summary: 'Remove a tag from a project',
    handle: async ({ database }, call) => {
      const tag = call.params.tag!
      await retag(database, call, tags => {
        requireTag(tags, tag)
        return tags.filter(other => other !== tag)
      })
      return NO_CONTENT
    },
  }),
]

async function addTag({ database }: Service, call: IdentityCall): Promise<Answer> {
  const { id, tag: text } = call.params
  const [tag = ''] = parse(request, { tags: [text] }).tags
  await retag(database, call, tags => {
    if (tags.includes(tag)) throw badRequest(`The project already has the tag ${tag}.`)
    return parse(request, { tags: [...tags, tag] }).tags
  })
  const Location = `${call.base}/v3/projects/${encodeURIComponent(id!)}/tags/${encodeURIComponent(tag)}`
  return { status: 201, headers: { Location } }
}

async function tagsOf(database: Database, { params }: IdentityCall): Promise<readonly string[]> {
  const { tags } = await findRow(database, projects, params.id!)
  return tags as string[]
}

/** @throws ApiError 403 if the project is immutable */
async function retag(
  database: Database,
  { params }: IdentityCall,
  change: (tags: readonly string[]) => readonly string[],
): Promise<readonly string[]> {
  return inTransaction(database, async trx => {
    const project = await findRow(trx, projects, params.id!, 'lock')
    if (project.options?.immutable === true) {
      throw forbidden(
        `Cannot change the tags of project ${project.id}, which is immutable. First set its option "immutable" to false.`,
      )
    }
    const tags = change(project.tags as string[])
    await execute(trx, sql`UPDATE project SET tags = ${tags} WHERE id = ${project.id}`)
    return tags
  })
}

function requireTag(tags: readonly string[], tag: string): void {
  if (!tags.includes(tag)) throw notFound(`Could not find project tag: ${tag}.`)
}

const presentTags = (call: IdentityCall, tags: readonly string[]): Answer =>
  jsonAnswer(200, { tags, links: { self: selfUrl(call) } })
