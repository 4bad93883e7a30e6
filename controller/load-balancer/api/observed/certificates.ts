import { certificate } from '../../objects/certificates/resource.js'
import { listRoute } from '../object-routes.js'

/** The certificates that load balancers of the project use. */
export const certificateRoutes = [listRoute(certificate, '/lbaas/certificates', 'read')]
