import type { Answer } from '../../api/answer.js'
import { changeLoadBalancer } from '../change/change.js'
import { replaceAll } from '../change/replace-amphorae.js'
import { loadBalancer } from '../objects/load-balancers/resource.js'
import { findObject } from '../schema/find.js'
import { parseArguments } from '../schema/list-query.js'
import { authorise } from '../schema/rights.js'
import type { Service } from '../schema/service.js'
import type { Call } from './routes.js'

/**
 * Has every amphora of a load balancer replaced by a new one. A change like any other: it is accepted while another is under way, and in
 * ERROR; the load balancer is PENDING_UPDATE until the last of the old amphorae is gone.
 * @throws ApiError 403, 404, 409 when it is being deleted
 */
export async function failOver(service: Service, { caller, right, params, queryString, asked }: Call): Promise<Answer> {
  parseArguments(queryString)
  const found = await findObject(service.database, loadBalancer, params.id ?? '')
  authorise(caller, right, found.project_id)
  await changeLoadBalancer(service, asked(), found.id, replaceAll)
  return { status: 202 }
}
