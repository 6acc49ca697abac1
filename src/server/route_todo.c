/* route_todo: handlers that are not there yet. */
#include "server/routes.h"


void route_prompt_post(struct http_req *r)
{
    http_reply_text(r, 501, "not there yet");
}

void route_prompt_get(struct http_req *r)
{
    http_reply_text(r, 501, "not there yet");
}

void route_queue_get(struct http_req *r)
{
    http_reply_text(r, 501, "not there yet");
}

void route_queue_post(struct http_req *r)
{
    http_reply_text(r, 501, "not there yet");
}

void route_queue_state_get(struct http_req *r)
{
    http_reply_text(r, 501, "not there yet");
}

void route_queue_state_post(struct http_req *r)
{
    http_reply_text(r, 501, "not there yet");
}

void route_interrupt(struct http_req *r)
{
    http_reply_text(r, 501, "not there yet");
}

void route_history_get(struct http_req *r)
{
    http_reply_text(r, 501, "not there yet");
}

void route_history_post(struct http_req *r)
{
    http_reply_text(r, 501, "not there yet");
}

void route_history_one(struct http_req *r)
{
    http_reply_text(r, 501, "not there yet");
}

void route_jobs_get(struct http_req *r)
{
    http_reply_text(r, 501, "not there yet");
}

void route_jobs_cancel(struct http_req *r)
{
    http_reply_text(r, 501, "not there yet");
}

void route_jobs_one(struct http_req *r)
{
    http_reply_text(r, 501, "not there yet");
}

void route_jobs_cancel_one(struct http_req *r)
{
    http_reply_text(r, 501, "not there yet");
}

void route_object_info(struct http_req *r)
{
    http_reply_text(r, 501, "not there yet");
}

void route_object_info_one(struct http_req *r)
{
    http_reply_text(r, 501, "not there yet");
}

void route_system_stats(struct http_req *r)
{
    http_reply_text(r, 501, "not there yet");
}

void route_features(struct http_req *r)
{
    http_reply_text(r, 501, "not there yet");
}

void route_extensions(struct http_req *r)
{
    http_reply_text(r, 501, "not there yet");
}

void route_empty_object(struct http_req *r)
{
    http_reply_text(r, 501, "not there yet");
}

void route_json_null(struct http_req *r)
{
    http_reply_text(r, 501, "not there yet");
}

void route_logs_text(struct http_req *r)
{
    http_reply_text(r, 501, "not there yet");
}

void route_logs_raw(struct http_req *r)
{
    http_reply_text(r, 501, "not there yet");
}

void route_logs_subscribe(struct http_req *r)
{
    http_reply_text(r, 501, "not there yet");
}

void route_embeddings(struct http_req *r)
{
    http_reply_text(r, 501, "not there yet");
}

void route_models(struct http_req *r)
{
    http_reply_text(r, 501, "not there yet");
}

void route_models_one(struct http_req *r)
{
    http_reply_text(r, 501, "not there yet");
}

void route_view_metadata(struct http_req *r)
{
    http_reply_text(r, 501, "not there yet");
}

void route_experiment_models(struct http_req *r)
{
    http_reply_text(r, 501, "not there yet");
}

void route_experiment_models_one(struct http_req *r)
{
    http_reply_text(r, 501, "not there yet");
}

void route_model_preview(struct http_req *r)
{
    http_reply_text(r, 501, "not there yet");
}

void route_internal_files(struct http_req *r)
{
    http_reply_text(r, 501, "not there yet");
}

void route_internal_folder_paths(struct http_req *r)
{
    http_reply_text(r, 501, "not there yet");
}

void route_view(struct http_req *r)
{
    http_reply_text(r, 501, "not there yet");
}

void route_upload_image(struct http_req *r)
{
    http_reply_text(r, 501, "not there yet");
}

void route_upload_mask(struct http_req *r)
{
    http_reply_text(r, 501, "not there yet");
}

void route_users_get(struct http_req *r)
{
    http_reply_text(r, 501, "not there yet");
}

void route_users_post(struct http_req *r)
{
    http_reply_text(r, 501, "not there yet");
}

void route_settings_get(struct http_req *r)
{
    http_reply_text(r, 501, "not there yet");
}

void route_settings_post(struct http_req *r)
{
    http_reply_text(r, 501, "not there yet");
}

void route_setting_get(struct http_req *r)
{
    http_reply_text(r, 501, "not there yet");
}

void route_setting_post(struct http_req *r)
{
    http_reply_text(r, 501, "not there yet");
}

void route_userdata_list(struct http_req *r)
{
    http_reply_text(r, 501, "not there yet");
}

void route_userdata_tree(struct http_req *r)
{
    http_reply_text(r, 501, "not there yet");
}

void route_userdata_get(struct http_req *r)
{
    http_reply_text(r, 501, "not there yet");
}

void route_userdata_post(struct http_req *r)
{
    http_reply_text(r, 501, "not there yet");
}

void route_userdata_delete(struct http_req *r)
{
    http_reply_text(r, 501, "not there yet");
}

void route_userdata_move(struct http_req *r)
{
    http_reply_text(r, 501, "not there yet");
}

void route_manager_version(struct http_req *r)
{
    http_reply_text(r, 501, "not there yet");
}

void route_manager_share_option(struct http_req *r)
{
    http_reply_text(r, 501, "not there yet");
}

void route_manager_db_mode(struct http_req *r)
{
    http_reply_text(r, 501, "not there yet");
}

void route_manager_preview_method(struct http_req *r)
{
    http_reply_text(r, 501, "not there yet");
}

void route_manager_policy_component(struct http_req *r)
{
    http_reply_text(r, 501, "not there yet");
}

void route_manager_policy_update(struct http_req *r)
{
    http_reply_text(r, 501, "not there yet");
}

void route_manager_channels(struct http_req *r)
{
    http_reply_text(r, 501, "not there yet");
}

void route_manager_notice(struct http_req *r)
{
    http_reply_text(r, 501, "not there yet");
}

void route_manager_queue_status(struct http_req *r)
{
    http_reply_text(r, 501, "not there yet");
}

void route_manager_queue(struct http_req *r)
{
    http_reply_text(r, 501, "not there yet");
}

void route_manager_refused(struct http_req *r)
{
    http_reply_text(r, 501, "not there yet");
}

void route_manager_packs(struct http_req *r)
{
    http_reply_text(r, 501, "not there yet");
}

void route_manager_models(struct http_req *r)
{
    http_reply_text(r, 501, "not there yet");
}

void route_manager_snapshots(struct http_req *r)
{
    http_reply_text(r, 501, "not there yet");
}

void route_manager_versions(struct http_req *r)
{
    http_reply_text(r, 501, "not there yet");
}

const struct http_sink sink_upload = { 0 };
const struct http_sink sink_userdata = { 0 };
